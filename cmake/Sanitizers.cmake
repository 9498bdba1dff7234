include_guard(GLOBAL)

set(ONS_SANITIZE "" CACHE STRING "Sanitizers for everything built here: address;undefined")

if(ONS_SANITIZE)
  list(JOIN ONS_SANITIZE "," ons_sanitizers)
  add_compile_options(-fsanitize=${ons_sanitizers} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ons_sanitizers})
  unset(ons_sanitizers)
endif()
