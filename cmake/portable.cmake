# ferry_portable: the program `ferry` from the same objects, linked to archives of its libraries, so
# that it needs nothing but glibc where it runs. For fmt and Highway see quick_start.cmake.
# Nothing else depends on the target, and without the archives there is none.
set(archives)
foreach(name pcre2-8 utf8proc jpeg png16 webp seccomp sz aec z crypto)
  find_library(FERRY_ARCHIVE_${name} lib${name}.a)
  if(NOT FERRY_ARCHIVE_${name})
    message(STATUS "No target ferry_portable: lib${name}.a is missing")
    return()
  endif()
  list(APPEND archives ${FERRY_ARCHIVE_${name}})
endforeach()
if(NOT FERRY_HDF5_ARCHIVE_LINKS)
  message(STATUS "No target ferry_portable: there is no archive of HDF5 that links")
  return()
endif()

add_executable(ferry_portable EXCLUDE_FROM_ALL $<TARGET_OBJECTS:ferry_cli>)
ferry_quick_start(ferry_portable)
# Not `ferry`: Ninja takes that for the name of either file.
set_target_properties(ferry_portable PROPERTIES
                      RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/portable)
target_link_libraries(ferry_portable PRIVATE $<TARGET_FILE:ferry_library> ${FERRY_HDF5_ARCHIVE}
                                             ${archives} Threads::Threads m ${CMAKE_DL_LIBS})
add_dependencies(ferry_portable ferry_library ferry)  # ferry writes the manual pages
