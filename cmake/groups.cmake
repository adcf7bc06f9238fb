# FERRY_GROUPS: sources of a room are compiled in groups of eight. That takes half of the time, because
# what they all include is read and instantiated once for each group. A change then compiles a whole
# group, so it is for builds from nothing; builds without it prove that every source includes what
# it uses.
option(FERRY_GROUPS "Compile the sources of a room in groups" OFF)

# Their anonymous namespaces have names that others have too, or they are compiled for several
# processors.
set(FERRY_ALONE
  batch/fingerprint.cc batch/result.cc cli/completion_bash.cc cli/completion_fish.cc
  cli/completion_zsh.cc "cli/verb_.*"
  "converters/adapters/gguf/(config|layers|names_single|readers|rope|tokenizer|written_limits).cc"
  "converters/adapters/quantized/(block_weight|config).cc" converters/blocks/mamba.cc
  converters/blocks/short_conv.cc converters/config/model_config.cc "converters/families/.*" "core/xxh3_.*" formats/gguf/writer.cc
  formats/pte/encode.cc formats/safetensors/index.cc formats/torch/zip.cc
  formats/torch/zip_contents.cc graph/experts.cc graph/infer_coded.cc
  graph/passes/quantize_weights.cc packer/delegate_data.cc packer/file_writer.cc
  packer/stage_contents.cc pipeline/bundle_input.cc pipeline/checkpoint_input.cc
  pipeline/coded_proof.cc pipeline/export_pth.cc proof/logit_search.cc
  runner/delegate/node_rules.cc runner/program_set.cc runner/static_program/kv_manager.cc
  text/gguf/vocabulary.cc text/image_prompt/messages.cc
  "text/tokenizer/(normalizer|pre_tokenizer|sentencepiece_document|token_decoder|tokenizer).cc"
  text/tokenizer/vocabulary_document.cc)
list(JOIN FERRY_ALONE "|" FERRY_ALONE)

function(ferry_group target)
  if(NOT FERRY_GROUPS)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  # The anonymous namespace of an included source is as private as that of any source.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
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
