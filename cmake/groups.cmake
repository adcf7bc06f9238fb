# FERRY_GROUPS: sources of a room are compiled in groups. That takes less than half of the time: what
# they all include is read and instantiated once for each group. A change then compiles a whole
# group, so it is for builds from nothing. Builds without it prove that every source includes what
# it uses.
option(FERRY_GROUPS "Compile the sources of a room in groups" OFF)
# As large as one group of a room may be without being the last to end on two cores.
set(FERRY_GROUP_SIZE 32 CACHE STRING "How many sources a group has at most")

# They are compiled for several processors, or for another one than their neighbours.
set(FERRY_ALONE
  "core/(sha256_lanes|xxh3_.*).cc"
  "graph/quantization/(codes|hqq|k_blocks|plain_blocks|search).cc"
  "kernels/compute_(attention|delta_rule|elementwise|joined|linear).cc"
  "kernels/quantized_(avx.*|neon_dot|weight_only).cc")
list(JOIN FERRY_ALONE "|" FERRY_ALONE)

function(ferry_group target)
  if(NOT FERRY_GROUPS)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON
                                             UNITY_BUILD_BATCH_SIZE ${FERRY_GROUP_SIZE})
  # The anonymous namespace of an included source is as private as that of any source. GCC collects
  # garbage only above 512 MiB, which few groups need; otherwise it takes a twentieth of the time.
  target_compile_options(${target} PRIVATE
    "$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage;--param=ggc-min-heapsize=524288>")
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE
               OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    if(path MATCHES "^(${FERRY_ALONE})$")
      set_property(SOURCE ${source} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()
