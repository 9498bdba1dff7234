# What the machine has that tests use: Criterion, CUDA's headers, NVRTC, torch, jaxlib. Each may be missing.

find_path(CRITERION_INCLUDE_DIR criterion/criterion.h)
find_library(CRITERION_LIBRARY criterion)
if(CRITERION_INCLUDE_DIR AND CRITERION_LIBRARY)
  set(ons_have_criterion ON)
else()
  set(ons_have_criterion OFF)
  message(WARNING "Criterion (libcriterion-dev) was not found: its tests are left out")
endif()

# ons_python_package_dir(NAME OUT): the folder of an installed Python package, or "".
find_package(Python COMPONENTS Interpreter)
function(ons_python_package_dir name out)
  set(found "")
  if(Python_FOUND)
    execute_process(
      COMMAND
        ${Python_EXECUTABLE} -c
        "import importlib.util as u; print(u.find_spec('${name}').submodule_search_locations[0])"
      OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

ons_python_package_dir(torch torch_dir)
set(ons_torch_dlpack ${torch_dir}/include/ATen/dlpack.h)
ons_python_package_dir(jaxlib jaxlib_dir)
set(ons_xla_include ${jaxlib_dir}/include)

# An allocation that cannot be met is a NULL, as without a sanitizer.
set(ons_test_environment LSAN_OPTIONS=suppressions=${CMAKE_CURRENT_SOURCE_DIR}/leaks.txt
                         ASAN_OPTIONS=allocator_may_return_null=1
                         ONSTREAM_CACHE_DIR=off)

# The pinned NVRTC of .venv goes before a toolkit, so that tests do not depend on that.
ons_python_package_dir(nvidia nvidia_dir)
set(ons_cuda_wheels ${nvidia_dir}/cu13)
file(GLOB ons_nvrtc ${ons_cuda_wheels}/lib/libnvrtc.so.*)
if(ons_nvrtc)
  list(APPEND ons_test_environment ONSTREAM_NVRTC=${ons_nvrtc}
       ONSTREAM_CUDA_INCLUDE=${ons_cuda_wheels}/include:${ons_cuda_wheels}/include/cccl)
endif()
find_path(ONS_CUDA_INCLUDE_DIR nvrtc.h HINTS ${ons_cuda_wheels} ENV CUDA_HOME
          PATHS /usr/local/cuda PATH_SUFFIXES include)
