# ferry_quick_start(TARGET): the program TARGET starts in half of the time. The dynamic linker looks up
# thousands of names for libstdc++, and libhwy measures a clock before main(). So the first is linked
# as an archive, and the few functions of libfmt and libhwy that are called come from quick_start/*.cc,
# because Debian has no archives of these.
add_library(ferry_quick_start OBJECT ${CMAKE_CURRENT_LIST_DIR}/quick_start/fmt.cc
                                     ${CMAKE_CURRENT_LIST_DIR}/quick_start/highway.cc)
target_include_directories(ferry_quick_start PRIVATE
  ${hwy_INCLUDE_DIRS} $<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>)

function(ferry_quick_start target)
  if(FERRY_SANITIZE)  # the sanitizers replace functions of the shared libraries
    return()
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:ferry_quick_start>)
  target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--as-needed)
endfunction()
