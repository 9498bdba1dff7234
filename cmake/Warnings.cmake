include_guard(GLOBAL)

option(ONS_WERROR "Treat warnings as errors" OFF)

# What all C code here is compiled with. PEDANTIC adds what Python's and Criterion's macros cannot
# pass: function pointers in void*, GNU extensions.
function(ons_target_warnings target)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "PEDANTIC" "" "")
  target_compile_options(
    ${target}
    PRIVATE -Wall -Wextra -Wshadow -Wvla -Wconversion
            $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes>
            $<$<BOOL:${ARG_PEDANTIC}>:-Wpedantic>
            $<$<BOOL:${ONS_WERROR}>:-Werror>)
endfunction()
