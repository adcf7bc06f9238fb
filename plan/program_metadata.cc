#include "plan/program_metadata.h"

#include <fmt/format.h>

#include <algorithm>

#include "converters/blocks/rope.h"
#include "converters/blocks/shared_layers.h"
#include "converters/blocks/static_ports.h"
#include "core/program_interface.h"
#include "packer/manifest.h"

namespace ferry::plan {
namespace {

using converters::BuildOptions;
using converters::ModelConfig;
using graph::MetadataMethod;

MetadataMethod eos_ids(const ModelConfig& config) {
  MetadataMethod method{"get_eos_ids", {}};
  for (const int64_t id : config.eos_ids) method.values.emplace_back(id);
  return method;
}

// Official runners recognise caches of 8, 16 and 32 bits by this value; 32 stands for floats.
int64_t cache_bit_width(DType dtype) { return is_encoded(dtype) ? dtype_bits(dtype) : 32; }

std::string torch_name(DType dtype) { return dtype == DType::kU8 ? "torch.uint8" : "torch.uint16"; }

// Adds methods that state scale, zero point, least code, greatest code and dtype of every new_k,
// then of every new_v.
void add_encodings(const converters::PortTypes& ports, std::vector<MetadataMethod>& methods) {
  if (is_encoded(ports.logits)) {
    methods.push_back({"get_logits_scale", {ports.logits_encoding.scale}});
    methods.push_back({"get_logits_zero_point", {ports.logits_encoding.zero_point}});
  }
  size_t output = 0;
  for (const std::vector<Encoding>* encodings : {&ports.keys, &ports.values}) {
    for (const Encoding& encoding : *encodings) {
      methods.push_back({fmt::format("get_kv_output_{}_quant_attr", output++),
                         {encoding.scale, encoding.zero_point, int64_t{0},
                          largest_code(ports.cache), torch_name(ports.cache)}});
    }
  }
}

// Adds the methods that a runner needs to requantise what prefill_forward has cached: the encodings
// of its new columns ("output"), and the encodings of the caches of kv_forward ("input").
void add_requantisation(const converters::PortTypes& ports, std::vector<MetadataMethod>& methods) {
  if (!ports.has_prefill_encodings()) return;
  const auto add = [&](std::string_view tensor, std::string_view side, size_t cache,
                       const Encoding& encoding) {
    methods.push_back({fmt::format("get_{}_scale_{}_{}", tensor, side, cache), {encoding.scale}});
    methods.push_back(
        {fmt::format("get_{}_zero_point_{}_{}", tensor, side, cache), {encoding.zero_point}});
  };
  for (size_t cache = 0; cache < ports.keys.size(); ++cache) {
    add("k", "output", cache, ports.prefill_keys[cache]);
    add("v", "output", cache, ports.prefill_values[cache]);
    add("k", "input", cache, ports.keys[cache]);
    add("v", "input", cache, ports.values[cache]);
  }
}

// Adds what official programs of Gemma 4 state beside the heads of sliding attention.
void add_kinds_of_layers(const ModelConfig& config, std::vector<MetadataMethod>& methods) {
  if (!config.full_heads) return;
  const int64_t first = converters::first_shared_layer(config);
  methods.push_back({"get_global_head_dim", {config.full_heads->dim}});
  methods.push_back({"get_n_self_layers", {first}});
  methods.push_back({"get_num_kv_shared_layers", {config.num_layers - first}});
}

std::vector<MetadataMethod> static_metadata(const ModelConfig& config, const BuildOptions& build) {
  const bool has_cache = std::ranges::any_of(config.layer_types, converters::is_attention);
  std::vector<MetadataMethod> methods = {
      {"get_ar_len", {build.decode_length}},
      {"get_dim", {config.hidden_size}},
      {"get_head_dim", {config.head_dim}},
      {"get_max_batch_size", {int64_t{1}}},
      {"get_max_seq_len", {build.context_length}},
      {"get_max_context_len", {build.context_length}},
      {"get_n_kv_heads", {config.num_kv_heads}},
      {"get_n_layers", {config.num_layers}},
      {"get_vocab_size", {config.vocab_size}},
      {"get_use_kv_cache", {has_cache}},
      {"get_kv_io_bit_width", {cache_bit_width(build.ports.cache)}},
  };
  if (converters::has_window(config, build)) {
    methods.push_back({std::string(kSlidingWindowMethod), {*config.sliding_window}});
  }
  if (config.vision && config.vision->two_way_images) {
    const int64_t number = config.vision->two_way_in_windows ? kTwoWayInWindows : kTwoWayInAll;
    methods.push_back({std::string(kTwoWayImagesMethod), {number}});
  }
  add_kinds_of_layers(config, methods);
  if (config.bos_id) {
    methods.push_back({"get_bos_id", {*config.bos_id}});
    methods.push_back({"get_n_bos", {int64_t{1}}});
  }
  if (!config.eos_ids.empty()) {
    methods.push_back({"get_eos_id", {config.eos_ids.front()}});
    methods.push_back({"get_n_eos", {static_cast<int64_t>(config.eos_ids.size())}});
    methods.push_back(eos_ids(config));
  }
  add_encodings(build.ports, methods);
  add_requantisation(build.ports, methods);
  return methods;
}

std::vector<MetadataMethod> encoder_metadata(const ModelConfig& config, const BuildOptions& build) {
  return {{"get_vocab_size", {config.vocab_size}},
          {"get_max_seq_len", {build.context_length}},
          {"get_max_context_len", {build.context_length}},
          {"get_n_layers", {config.num_layers}},
          {"enable_dynamic_shape", {true}},
          {"use_kv_cache", {false}}};
}

}  // namespace

std::vector<MetadataMethod> program_metadata(const ModelConfig& config, const BuildOptions& build) {
  if (build.style == converters::ProgramStyle::kStatic) return static_metadata(config, build);
  if (build.style == converters::ProgramStyle::kEncoder) return encoder_metadata(config, build);
  std::vector<MetadataMethod> methods = {
      {"get_vocab_size", {config.vocab_size}},
      // Official runners split the prefill into chunks of at most this many tokens.
      {"get_max_seq_len", {build.prefill_length}},
      {"get_max_context_len", {build.attention_sink ? kEndlessPositions : build.context_length}},
      {"get_n_layers", {config.num_layers}},
      {"enable_dynamic_shape", {true}},
      {"use_kv_cache", {true}},
      {"use_sdpa_with_kv_cache", {true}},
  };
  if (const auto limit = converters::longrope_switch(config.rope, build)) {
    methods.push_back({std::string(packer::kRopeSwitchMethod), {*limit}});
  }
  if (config.bos_id) methods.push_back({"get_bos_id", {*config.bos_id}});
  if (!config.eos_ids.empty()) methods.push_back(eos_ids(config));
  return methods;
}

}  // namespace ferry::plan
