# ferry_quick_start(TARGET) halves the time in which the program TARGET starts. The dynamic linker looks up
# thousands of names for libstdc++, and libhwy measures a clock before main(). So libstdc++ is linked as an
# archive. Debian has no archives of libfmt and libhwy, so quick_start/*.cc has the few functions that are
# called.
add_library(ferry_quick_start OBJECT ${CMAKE_CURRENT_LIST_DIR}/quick_start/fmt.cc
                                     ${CMAKE_CURRENT_LIST_DIR}/quick_start/highway.cc)
target_include_directories(ferry_quick_start PRIVATE
  ${hwy_INCLUDE_DIRS} $<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>)

function(ferry_quick_start target)
  if(FERRY_SANITIZE)  # sanitizers replace functions of the shared libraries
    return()
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:ferry_quick_start>)
  target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--as-needed)
endfunction()
