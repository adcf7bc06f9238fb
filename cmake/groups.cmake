# With FERRY_GROUPS, sources are compiled in groups, those of the product across its folders. A build from
# nothing then takes half of the time, because each group reads its headers and compiles shared templates
# once. A later change compiles a whole group again. Builds without groups prove that every source includes
# what it uses, and that a folder links only what it may use.
# A group has at most this many sources of one folder, in their order. Sources of one folder in one group
# share an anonymous namespace.
set(FERRY_GROUP_SIZE 48 CACHE STRING "How many sources of a folder a group has at most")
set(FERRY_GROUP_COUNT 6 CACHE STRING "How many groups the product has")

# These sources are compiled alone: those for several processors or for another one than their neighbours,
# the version, which changes with every commit, and those with functions that the mutation test replaces.
set(FERRY_ALONE
  "graph/passes/shard.cc"
  "calibration/multiples.cc"
  "core/version.cc"
  "core/(sha256_lanes|xxh3_.*).cc"
  "graph/quantization/(codes|curve_blocks|hqq|plain_blocks|range_blocks|scale_blocks|search).cc"
  "kernels/(bf16_(amx|avx512|neon)|block_(linear|neon_.*|.*vnni)).cc"
  "kernels/common_target.cc"
  "kernels/compute_(attention|cache_codes|delta_rule|elementwise|joined|linear).cc"
  "kernels/quantized_(avx.*|neon_.*|weight_only).cc")
list(JOIN FERRY_ALONE "|" FERRY_ALONE)

# GCC warns about anonymous namespaces in included files, but the included files here are sources. Garbage
# collection takes a twentieth of GCC's time. It begins above 2 GiB, which no group needs.
set(FERRY_GROUP_OPTIONS
    "$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage;--param=ggc-min-heapsize=2097152>")

function(ferry_is_alone source out)
  cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
  cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
  set(alone FALSE)
  if(source MATCHES "^(${FERRY_ALONE})$")
    set(alone TRUE)
  endif()
  set(${out} ${alone} PARENT_SCOPE)
endfunction()

# Compiles the sources of a program, or of one library, in groups.
function(ferry_group target)
  if(NOT FERRY_GROUPS)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON
                                             UNITY_BUILD_BATCH_SIZE ${FERRY_GROUP_SIZE})
  target_compile_options(${target} PRIVATE ${FERRY_GROUP_OPTIONS})
endfunction()

if(NOT FERRY_GROUPS)
  return()
endif()

# The whole product has three parts, which are compiled with different options.
foreach(part cold hot json)
  add_library(ferry_product_${part} OBJECT)
  set_target_properties(ferry_product_${part} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  target_compile_options(ferry_product_${part} PRIVATE ${FERRY_GROUP_OPTIONS})
  target_include_directories(ferry_product_${part} PUBLIC ${PROJECT_SOURCE_DIR}
                                                   PRIVATE ${PROJECT_BINARY_DIR}/generated)
endforeach()
target_precompile_headers(ferry_product_cold REUSE_FROM ferry_headers)
target_precompile_headers(ferry_product_hot REUSE_FROM ferry_hot_headers)
target_precompile_headers(ferry_product_json REUSE_FROM ferry_json_headers)
target_compile_options(ferry_product_hot PRIVATE ${FERRY_HOT})
add_library(ferry_product STATIC $<TARGET_OBJECTS:ferry_product_cold>
                                 $<TARGET_OBJECTS:ferry_product_hot>
                                 $<TARGET_OBJECTS:ferry_product_json>)
target_include_directories(ferry_product PUBLIC ${PROJECT_SOURCE_DIR})
set_property(GLOBAL PROPERTY FERRY_OBJECTS ferry_product_cold ferry_product_hot ferry_product_json)

# Puts sources of one folder into the groups of a part of the product.
function(ferry_add_to_groups part count sources)
  get_property(next GLOBAL PROPERTY FERRY_NEXT_GROUP_${part})
  if(NOT next)
    set(next 0)
  endif()
  set(taken 0)
  foreach(source ${sources})
    target_sources(ferry_product_${part} PRIVATE ${source})
    ferry_is_alone(${source} alone)
    if(alone OR NOT source MATCHES "[.]cc$")
      set_property(SOURCE ${source} TARGET_DIRECTORY ferry_product_${part}
                   PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
      continue()
    endif()
    math(EXPR group "(${next} + ${taken} / ${FERRY_GROUP_SIZE}) % ${count}")
    set_property(SOURCE ${source} TARGET_DIRECTORY ferry_product_${part}
                 PROPERTY UNITY_GROUP ${part}_${group})
    math(EXPR taken "${taken} + 1")
  endforeach()
  math(EXPR next "${next} + (${taken} + ${FERRY_GROUP_SIZE} - 1) / ${FERRY_GROUP_SIZE}")
  set_property(GLOBAL PROPERTY FERRY_NEXT_GROUP_${part} ${next})
endfunction()

# Does the work of ferry_folder() in a build with groups, where NAME stands for the whole product.
function(ferry_grouped_folder name cold hot json links include)
  ferry_add_to_groups(cold ${FERRY_GROUP_COUNT} "${cold}")
  ferry_add_to_groups(hot 2 "${hot}")
  ferry_add_to_groups(json 2 "${json}")
  list(FILTER links EXCLUDE REGEX "^ferry_")
  list(FILTER links EXCLUDE REGEX "^$")
  target_link_libraries(ferry_product PUBLIC ${links})
  foreach(part cold hot json)
    target_link_libraries(ferry_product_${part} PRIVATE ${links})
    target_include_directories(ferry_product_${part} SYSTEM PRIVATE ${include})
  endforeach()
  add_library(${name} INTERFACE)
  target_link_libraries(${name} INTERFACE ferry_product)
endfunction()
