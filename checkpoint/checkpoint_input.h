// open_checkpoint_input() brings a checkpoint of any format into one form: tensors with Hugging
// Face keys, the text of a Hugging Face config.json, and the files for the bundle. It is the only
// place that knows which formats have their own names and configs.
// open_bundle_input() does the same for a bundle, so that other formats can be made of it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "converters/config/model_config.h"
#include "converters/keys/keyed_tensors.h"
#include "core/progress.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "core/thread_pool.h"
#include "packer/bundle_plan.h"

namespace ferry::checkpoint {

struct CheckpointInput {
  std::unique_ptr<TensorSource> source;
  converters::KeyedTensors tensors;  // recipes over `source`
  std::string config;                // text of a config.json
  std::string config_name;           // file that begins messages about the config
  std::string generation;            // text of a generation_config.json, or empty
  // Files for the bundle: config.json, then generation_config.json, tokenizer and processor files
  // where there are any; as they are, or as texts that an adapter made. Last come README, licences
  // and the like.
  std::vector<packer::CopiedFile> copied;
  // The directory of a checkpoint with Hugging Face names; else empty.
  std::string directory = {};
  // How the states of an encoder become one vector, where no file beside the checkpoint says so.
  std::optional<converters::SentenceConfig> sentence = {};
  converters::Inputs inputs = {};  // what there are towers for, if towers are built by choice
  std::vector<std::string> notes;  // lines for the user about files that could not be carried over
};

// `path` is that of open_checkpoint(). `config`, where not empty, is a config.json to use instead
// of the checkpoint's; `lora`, where not empty, is the directory of an adapter that is merged into
// the tensors; `mmproj`, where not empty, is the projector of a GGUF file: the two become a model
// that takes images. Processor files beside `config` then count instead of those that the projector
// gives. kBadInput where there is no config; kUsage for a projector without a GGUF file.
Result<CheckpointInput> open_checkpoint_input(const std::string& path, const std::string& config,
                                              const std::string& lora, const std::string& mmproj);

// Returns what the programs of a bundle take beside text.
converters::Inputs inputs_of(const packer::Manifest& manifest);

// Whether there is a directory with a manifest at `path`.
bool is_bundle(const std::string& path);

// The tensors have the keys of a Hugging Face checkpoint: those of the checkpoint that the bundle
// was made of, if it was one of Hugging Face, else those of its family. Weights that the bundle
// stores in f32 have the dtype of the checkpoint again where that loses nothing. Every byte of the
// bundle is checked. `config` is that of open_checkpoint_input(). kUnsupported for bundles with
// codes and scales instead of weights.
Result<CheckpointInput> open_bundle_input(const std::string& path, const std::string& config,
                                          ThreadPool& pool);

// Merges an adapter in peft's format into the tensors of the input. `path` is a directory with
// adapter_config.json and adapter_model.safetensors or .bin. Both become files of the source, so
// that their digests are stated with those of the checkpoint. Errors are those of merge_lora().
Status merge_adapter(CheckpointInput& input, const std::string& path);

// Adds what a folder of sentence-transformers has beside its encoder: the way in which its states
// become one vector, and the weights of the modules that do it. Sets config.sentence where the
// folder has modules.json, and adds the tensors of its modules to those of the input. Their files
// become files of the source, so that their digests are stated with those of the checkpoint. Errors
// are those of parse_sentence_config(), and those of reading the files.
Status add_sentence_modules(CheckpointInput& input, converters::ModelConfig& config);

// Reads what the folder of a classifier has beside its weights: the limit of a text, and the scores
// of a CrossEncoder of sentence-transformers. Requires config.classifier.
Status read_classifier_folder(const CheckpointInput& input, converters::ModelConfig& config);

// Whether the checkpoint is a folder of sentence-transformers.
bool has_sentence_modules(const CheckpointInput& input);

}  // namespace ferry::checkpoint
