# ferry_portable is the program `ferry`, linked from the same objects with archives of its libraries, so that
# it needs only glibc where it runs. quick_start.cmake replaces the libraries of fmt and Highway. No other
# target depends on ferry_portable. It does not exist if an archive is missing.
set(FERRY_ARCHIVES)
foreach(name pcre2-8 utf8proc jpeg png16 webp yaml zstd seccomp sz aec z crypto)
  find_library(FERRY_ARCHIVE_${name} lib${name}.a)
  if(NOT FERRY_ARCHIVE_${name})
    message(STATUS "No target ferry_portable: lib${name}.a is missing")
    unset(FERRY_ARCHIVES)
    return()
  endif()
  list(APPEND FERRY_ARCHIVES ${FERRY_ARCHIVE_${name}})
endforeach()
if(NOT FERRY_HDF5_ARCHIVE_LINKS)
  message(STATUS "No target ferry_portable: there is no archive of HDF5 that links")
  unset(FERRY_ARCHIVES)
  return()
endif()

add_executable(ferry_portable EXCLUDE_FROM_ALL $<TARGET_OBJECTS:ferry_cli>)
ferry_quick_start(ferry_portable)
# The file cannot be named `ferry`, because Ninja would confuse it with the file of the target ferry.
set_target_properties(ferry_portable PROPERTIES
                      RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/portable)
target_link_libraries(ferry_portable PRIVATE $<TARGET_FILE:ferry_library> ${FERRY_HDF5_ARCHIVE}
                                             ${FERRY_ARCHIVES} Threads::Threads m ${CMAKE_DL_LIBS})
add_dependencies(ferry_portable ferry_library)
if(FERRY_PYTHON)
  target_link_options(ferry_portable PRIVATE -s)  # install() strips no file of another name
else()
  add_dependencies(ferry_portable ferry)  # which writes the man pages
endif()
