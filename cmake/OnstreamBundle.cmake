# onstream_add_bundle(TARGET NAME SOURCE FILE ARCHITECTURES ARCH... [KERNELS NAME...]
#                     [OPTIONS OPTION...] [DEPENDS FILE...] [WITH_SOURCE])
#
# Compiles FILE at build time and links the bundle into TARGET. The header <NAME.h> declares
#   extern const unsigned char NAME[], NAME_end[];
# for ons_module_create_from_bundle(runtime, NAME, (size_t)(NAME_end - NAME), ...). DEPENDS: headers
# whose change compiles it again.
function(onstream_add_bundle target name)
  cmake_parse_arguments(PARSE_ARGV 2 arg "WITH_SOURCE" "SOURCE"
                        "ARCHITECTURES;KERNELS;OPTIONS;DEPENDS")
  if(NOT arg_SOURCE OR NOT arg_ARCHITECTURES OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "onstream_add_bundle(${target} ${name}): give SOURCE and ARCHITECTURES "
                        "(unknown: '${arg_UNPARSED_ARGUMENTS}')")
  endif()
  get_filename_component(source ${arg_SOURCE} ABSOLUTE)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/${name}.bundle)
  set(bundle ${folder}/${name}.onsb)
  list(TRANSFORM arg_ARCHITECTURES PREPEND "-a;" OUTPUT_VARIABLE archs)
  list(TRANSFORM arg_KERNELS PREPEND "-k;" OUTPUT_VARIABLE kernels)
  set(with_source "")
  if(arg_WITH_SOURCE)
    set(with_source --source)
  endif()
  add_custom_command(
    OUTPUT ${bundle}
    COMMAND onstream::bundle_tool ${source} ${archs} ${kernels} ${with_source} -o ${bundle} --
            ${arg_OPTIONS}
    DEPENDS ${source} ${arg_DEPENDS} $<TARGET_FILE:onstream::bundle_tool>
    COMMENT "Bundling ${name}"
    VERBATIM)
  file(
    WRITE ${folder}/${name}.h.in
    "extern const unsigned char ${name}[], ${name}_end[];\n")
  configure_file(${folder}/${name}.h.in ${folder}/${name}.h COPYONLY)
  file(
    WRITE ${folder}/${name}.c.in
    "#include \"${name}.h\"\n"
    "__asm__(\".pushsection .rodata\\n.balign 16\\n.globl ${name}\\n${name}:\\n\"\n"
    "        \".incbin \\\"${bundle}\\\"\\n.globl ${name}_end\\n${name}_end:\\n.byte 0\\n\"\n"
    "        \".popsection\\n\");\n")
  configure_file(${folder}/${name}.c.in ${folder}/${name}.c COPYONLY)
  set_source_files_properties(${folder}/${name}.c PROPERTIES OBJECT_DEPENDS ${bundle})
  target_sources(${target} PRIVATE ${folder}/${name}.c)
  target_include_directories(${target} PRIVATE ${folder})
endfunction()
