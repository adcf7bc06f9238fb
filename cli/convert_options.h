// The options of `ferry convert`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/command_line.h"
#include "cli/quantize_options.h"
#include "convert/export.h"
#include "core/result.h"
#include "plan/conversion.h"

namespace ferry::cli {

// As they stand on the line; settle() makes `convert` of them.
struct ConvertLine {
  plan::ConvertOptions convert;
  std::string out;
  std::string to = "bundle";
  std::string component_dtype;
  std::string dtype = "keep", logits, init_buffers, program;
  std::string packed_layout = "own";
  std::string attention = "mha", softmax = "plain", rotate = "none";
  std::string kv_dtype, mask_dtype, logits_dtype, calibrate, calibrate_prefill;
  QuantizeTexts quantize;
  std::string max_file_size;
  std::string part, join;                             // of a conversion by several hosts
  std::optional<packer::BundlePart> one_part;         // `part`, once settled
  std::string outtype = "auto", name, tokenizer_pre;  // of --to gguf, as the next one
  int64_t max_file_tensors = 0;
  int64_t shards = 1;
  bool dry_run = false, overwrite = false, if_changed = false, resume = false, no_sync = false;
};

// Declares all of them.
void add_convert_options(Verb& verb, ConvertLine& line);

// kUsage for options that make no sense, alone or together.
Status settle(ConvertLine& line);

// Of a settled line, what is made where that is no bundle; nullopt where it is one.
std::optional<convert::ExportOptions> export_options(const ConvertLine& line);

}  // namespace ferry::cli
