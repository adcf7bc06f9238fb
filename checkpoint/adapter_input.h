// Opens an adapter in peft's format.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "converters/lora/lora.h"
#include "core/derived_source.h"
#include "core/result.h"
#include "core/tensor_source.h"

namespace ferry::checkpoint {

struct AdapterFiles {
  std::unique_ptr<TensorSource> tensors;
  SourceFile config_file;    // adapter_config.json as a file of a source
  std::string config_state;  // see DerivedSource::add_file()
  converters::LoraConfig config;
};

// `path` is a directory with adapter_config.json and adapter_model.safetensors or .bin. Errors are
// those of parse_lora_config() and of reading the files.
Result<AdapterFiles> open_adapter(const std::string& path);

// Makes both files of the adapter files of the source, so that their digests are stated. If
// `folder` is not empty, it and a dot precede the names of files and tensors. Returns the index of
// the first tensor.
Result<size_t> add_adapter(DerivedSource& source, AdapterFiles& adapter,
                           const std::string& folder = {});

}  // namespace ferry::checkpoint
