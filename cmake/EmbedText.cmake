# Turns text files into a C file of NUL-terminated arrays: NAME.h becomes
#   const char ons__text_NAME_h[];
# beside ons__text_digest[], a digest of these files and of others.
# Included, it gives ons_embed_text(OUTPUT TEXT FILE... DIGESTED FILE...); as a script (-P) it does the work at build time.
if(CMAKE_SCRIPT_MODE_FILE AND CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  set(content "#include \"jit/embedded.h\"\n")
  set(digests)
  string(REPLACE "|" ";" digested "${DIGESTED}")
  foreach(file IN LISTS digested)
    file(SHA256 "${file}" digest)
    list(APPEND digests ${digest})
  endforeach()
  string(SHA256 digest "${digests}")
  string(APPEND content "\nconst char ons__text_digest[] = \"${digest}\";\n")
  string(REPLACE "|" ";" files "${FILES}")
  foreach(file IN LISTS files)
    get_filename_component(name "${file}" NAME)
    string(MAKE_C_IDENTIFIER "${name}" name)
    file(READ "${file}" bytes HEX)
    string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(APPEND content "\nconst char ons__text_${name}[] = {\n${bytes}0};\n")
  endforeach()
  file(WRITE "${OUTPUT}" "${content}")
  return()
endif()

set(ons_embed_text_script "${CMAKE_CURRENT_LIST_FILE}")

function(ons_embed_text output)
  cmake_parse_arguments(arg "" "" "TEXT;DIGESTED" ${ARGN})
  set(files)
  foreach(file IN LISTS arg_TEXT)
    get_filename_component(file "${file}" ABSOLUTE)
    list(APPEND files "${file}")
  endforeach()
  set(digested ${files})
  foreach(file IN LISTS arg_DIGESTED)
    get_filename_component(file "${file}" ABSOLUTE)
    list(APPEND digested "${file}")
  endforeach()
  string(REPLACE ";" "|" joined "${files}")
  string(REPLACE ";" "|" joined_digested "${digested}")
  add_custom_command(
    OUTPUT "${output}"
    COMMAND "${CMAKE_COMMAND}" "-DOUTPUT=${output}" "-DFILES=${joined}"
            "-DDIGESTED=${joined_digested}" -P
            "${ons_embed_text_script}"
    DEPENDS ${digested} "${ons_embed_text_script}"
    COMMENT "Embedding device headers"
    VERBATIM)
endfunction()
