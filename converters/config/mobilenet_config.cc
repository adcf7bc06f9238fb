#include "converters/config/mobilenet_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "converters/config/config_parts.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

using nlohmann::json;

constexpr const char* kArchitecture = "mobilenetv5_300m_enc";
constexpr const char* kArgs = "model_args";
constexpr const char* kBlocks = "block_args";
constexpr const char* kFused = "msfa_indices";
// The reference fixes the width of the tower, and how much wider its last layer is inside.
constexpr int64_t kWidth = 2048, kFusionExpansion = 2;
// The reference makes of further strides convolutions with gaps.
constexpr size_t kMostStages = 4;
constexpr size_t kMostBlocks = 1024;
constexpr int64_t kMostSide = 256;
// The pixels of a side in the released models.
constexpr int64_t kImageSize = 768;
constexpr IntRange kChannelRange = {1, 1 << 16}, kKernelRange = {0, 31}, kStrideRange = {1, 2},
                   kKvStrideRange = {1, 64};
constexpr FloatRange kExpansionRange = {1e-3, 64.0}, kMultiplierRange = {1e-3, 64.0};

// Equal blocks of a stage that follow each other.
struct Run {
  int64_t count = 1;
  MobileNetKind kind;
  double expansion;
  int64_t stride, before, between, out;
};
// The blocks of attention, each with an inverted one behind it, that end a stage.
struct Pairs {
  int64_t count, heads, head_dim, kv_stride;
};
constexpr MobileNetKind kEdge = MobileNetKind::kEdge, kInverted = MobileNetKind::kInverted;
constexpr Run kFirst[] = {{1, kEdge, 4, 2, 0, 3, 128}, {2, kEdge, 4, 1, 0, 3, 128}};
constexpr Run kSecond[] = {{1, kInverted, 6, 2, 3, 5, 256},
                           {1, kInverted, 4, 1, 5, 0, 256},
                           {1, kInverted, 4, 1, 3, 0, 256},
                           {1, kInverted, 4, 1, 5, 0, 256},
                           {1, kInverted, 4, 1, 3, 0, 256}};
constexpr Run kThird[] = {{1, kInverted, 6, 2, 5, 5, 640},
                          {7, kInverted, 4, 1, 5, 0, 640},
                          {1, kInverted, 1, 1, 0, 0, 640}};
constexpr Run kFourth[] = {{1, kInverted, 6, 2, 5, 5, 1280}};
struct Stage {
  std::span<const Run> runs;
  Pairs pairs;
};
constexpr Stage kStages[] = {{kFirst, {0, 0, 0, 1}},
                             {kSecond, {0, 0, 0, 1}},
                             {kThird, {14, 12, 64, 2}},
                             {kFourth, {19, 16, 96, 1}}};

// Returns a number of channels as the reference rounds it: to eights, and no more than a tenth
// down.
int64_t rounded(double channels) {
  constexpr int64_t kOf = 8;
  const auto whole =
      std::max(kOf, static_cast<int64_t>(channels + static_cast<double>(kOf) / 2) / kOf * kOf);
  return static_cast<double>(whole) < 0.9 * channels ? whole + kOf : whole;
}

// MobileNetReader collects the blocks of the stages one after the other.
class MobileNetReader {
 public:
  // `args` are model_args; nullptr where there are none.
  MobileNetReader(const JsonFields& vision, const JsonFields* args, MobileNetConfig& out)
      : vision_(vision), args_(args), out_(out) {}

  Status read() {
    FERRY_RETURN_IF_ERROR(check_args());
    FERRY_RETURN_IF_ERROR(read_stem());
    if (args_ != nullptr && args_->find(kBlocks) != nullptr) {
      FERRY_RETURN_IF_ERROR(read_stages());
    } else {
      add_stages();
    }
    return read_fusion();
  }

 private:
  // Refuses arguments that are not read. Those for training and for first values have no effect,
  // and timm takes a null for an argument that is not stated.
  Status check_args() {
    if (args_ == nullptr) return {};
    constexpr std::string_view kRead[] = {"channel_multiplier",
                                          "stem_size",
                                          "fix_stem",
                                          "stem_bias",
                                          "drop_path_rate",
                                          kBlocks,
                                          "drop_rate",
                                          "layer_scale_init_value",
                                          kFused,
                                          "in_chans",
                                          "pad_type",
                                          "msfa_output_resolution"};
    for (const auto& [name, value] : vision_.find(kArgs)->items()) {
      if (value.is_null() || std::ranges::count(kRead, name) > 0) continue;
      return args_->error(ErrorCode::kUnsupported, name,
                          "is an argument of timm that is not supported");
    }
    if (FERRY_TRY(args_->text("pad_type")).value_or("same") != "same") {
      return args_->error(ErrorCode::kUnsupported, "pad_type", "is not same: not supported");
    }
    FERRY_TRY(args_->number("layer_scale_init_value", {-1e6, 1e6}));
    for (const char* rate : {"drop_rate", "drop_path_rate"}) {
      FERRY_TRY(args_->number(rate, {0.0, 1.0}));
    }
    const int64_t channels = FERRY_TRY(args_->integer_or("in_chans", kChannelRange, 3));
    if (channels == 3) return {};
    return args_->error(ErrorCode::kUnsupported, "in_chans",
                        fmt::format("is {}: images have 3 channels", channels));
  }

  Status read_stem() {
    int64_t size = 64;
    bool fixed = false;
    if (args_ != nullptr) {
      multiplier_ = FERRY_TRY(args_->number_or("channel_multiplier", kMultiplierRange, 1.0));
      size = FERRY_TRY(args_->integer_or("stem_size", kChannelRange, size));
      fixed = FERRY_TRY(args_->flag_or("fix_stem", multiplier_ < 1.0));
      out_.stem_bias = FERRY_TRY(args_->flag_or("stem_bias", true));
    }
    out_.stem = channels_ = fixed ? size : scaled(size);
    return {};
  }
  int64_t scaled(int64_t channels) const {
    return rounded(static_cast<double>(channels) * multiplier_);
  }

  void add(MobileNetBlock block, double expansion) {
    block.in = channels_;
    block.out = channels_ = scaled(block.out);
    block.middle = rounded(static_cast<double>(block.in) * expansion);
    block.skips = block.skips && block.in == block.out && block.stride == 1;
    out_.stages.back().push_back(block);
  }

  // The stages of the released tower.
  void add_stages() {
    for (const Stage& stage : kStages) {
      out_.stages.emplace_back();
      for (const Run& run : stage.runs) {
        for (int64_t i = 0; i < run.count; ++i) {
          MobileNetBlock block;
          block.kind = run.kind;
          block.out = run.out;
          block.stride = run.stride;
          block.before = run.before;
          block.between = run.between;
          add(block, run.expansion);
        }
      }
      for (int64_t i = 0; i < stage.pairs.count; ++i) {
        MobileNetBlock block;
        block.kind = MobileNetKind::kAttention;
        block.out = stage.runs.back().out;
        block.before = 3;
        block.heads = stage.pairs.heads;
        block.head_dim = stage.pairs.head_dim;
        block.kv_stride = stage.pairs.kv_stride;
        add(block, 1.0);
        MobileNetBlock mlp;
        mlp.kind = kInverted;
        mlp.out = block.out;
        add(mlp, 2.0);
      }
    }
  }

  // -- block_args

  static std::string place_of(size_t stage, size_t block) {
    return fmt::format("{}[{}][{}]", kBlocks, stage, block);
  }
  Status read_stages() {
    const json* stages = args_->find(kBlocks);
    const auto is_list = [](const json& list, size_t most) {
      return list.is_array() && !list.empty() && list.size() <= most;
    };
    if (!is_list(*stages, 1 << 10)) return args_->bad(kBlocks, "is no list");
    if (stages->size() > kMostStages) {
      return args_->error(
          ErrorCode::kUnsupported, kBlocks,
          fmt::format("has {} stages: at most {} are supported", stages->size(), kMostStages));
    }
    for (size_t i = 0; i < stages->size(); ++i) {
      const json& blocks = (*stages)[i];
      if (!is_list(blocks, kMostBlocks)) {
        return args_->bad(fmt::format("{}[{}]", kBlocks, i),
                          fmt::format("is no list of 1 to {} blocks", kMostBlocks));
      }
      out_.stages.emplace_back();
      for (size_t j = 0; j < blocks.size(); ++j) {
        if (!blocks[j].is_object()) return args_->bad(place_of(i, j), "is no object");
        const JsonFields fields = args_->item(blocks[j], place_of(i, j));
        FERRY_RETURN_IF_ERROR(read_block(fields, blocks[j], j == 0, j + 1 == blocks.size()));
      }
    }
    return {};
  }

  // The first block of a stage has its stride, the others have none, whatever they say.
  Status read_block(const JsonFields& fields, const json& stated, bool first, bool last) {
    const std::string type = FERRY_TRY(fields.text("block_type")).value_or("");
    MobileNetBlock block;
    block.out = FERRY_TRY(fields.required("out_chs", kChannelRange));
    block.stride = FERRY_TRY(fields.required("stride", kStrideRange));
    block.skips = !FERRY_TRY(fields.flag_or("noskip", false));
    if (first && block.stride == 1) {
      return fields.error(ErrorCode::kUnsupported, "stride",
                          "is 1 in the first block of a stage: not supported");
    }
    if (!first) block.stride = 1;
    std::set<std::string_view> known = {"block_type", "out_chs", "stride", "noskip", "act_layer"};
    double expansion = 1.0;
    if (type == "er" || type == "uir") {
      expansion = FERRY_TRY(fields.number_or("exp_ratio", kExpansionRange, 1.0));
      known.insert({"exp_ratio", "se_ratio"});
      const auto squeezed = FERRY_TRY(fields.number("se_ratio", {0.0, 64.0}));
      if (squeezed.value_or(0.0) != 0.0) {
        return fields.error(ErrorCode::kUnsupported, "se_ratio", "is not 0: not supported");
      }
    }
    if (type == "er") {
      FERRY_RETURN_IF_ERROR(read_edge(fields, known, block));
    } else if (type == "uir") {
      FERRY_RETURN_IF_ERROR(read_inverted(fields, known, block));
    } else if (type == "mqa") {
      FERRY_RETURN_IF_ERROR(read_attention(fields, known, first, last, block));
    } else {
      return fields.error(ErrorCode::kUnsupported, "block_type",
                          fmt::format("is {}; er, uir and mqa are supported", quoted(type, 40)));
    }
    for (const auto& [name, value] : stated.items()) {
      if (name == "act_layer" ? value.is_null() : known.contains(name) && !value.is_null())
        continue;
      return fields.error(ErrorCode::kUnsupported, name,
                          value.is_null() ? "is null: not supported" : "is not supported here");
    }
    add(block, expansion);
    return check_widths(fields);
  }

  Status read_edge(const JsonFields& fields, std::set<std::string_view>& known,
                   MobileNetBlock& block) {
    known.insert({"exp_kernel_size", "pw_kernel_size", "force_in_chs"});
    block.kind = MobileNetKind::kEdge;
    block.between = FERRY_TRY(fields.integer_or("exp_kernel_size", {1, kKernelRange.max}, 3));
    const int64_t side = FERRY_TRY(fields.integer_or("pw_kernel_size", kKernelRange, 1));
    const int64_t forced = FERRY_TRY(fields.integer_or("force_in_chs", {0, kChannelRange.max}, 0));
    if (side == 1 && forced == 0) return {};
    return fields.error(ErrorCode::kUnsupported, side != 1 ? "pw_kernel_size" : "force_in_chs",
                        fmt::format("is {}: not supported", side != 1 ? side : forced));
  }

  Status read_inverted(const JsonFields& fields, std::set<std::string_view>& known,
                       MobileNetBlock& block) {
    known.insert({"dw_kernel_size_start", "dw_kernel_size_mid", "dw_kernel_size_end"});
    block.kind = MobileNetKind::kInverted;
    block.before = FERRY_TRY(fields.integer_or("dw_kernel_size_start", kKernelRange, 0));
    block.between = FERRY_TRY(fields.integer_or("dw_kernel_size_mid", kKernelRange, 3));
    block.behind = FERRY_TRY(fields.integer_or("dw_kernel_size_end", kKernelRange, 0));
    if (block.stride == 1 || block.before + block.between + block.behind > 0) return {};
    return fields.bad("stride", "is 2 in a block without a convolution");
  }

  Status read_attention(const JsonFields& fields, std::set<std::string_view>& known, bool first,
                        bool last, MobileNetBlock& block) {
    known.insert({"dw_kernel_size", "num_heads", "key_dim", "value_dim", "kv_stride"});
    block.kind = MobileNetKind::kAttention;
    // The reference takes no stride here, and knows no width of a stage that ends so.
    if (first || last) {
      return fields.error(ErrorCode::kUnsupported, "block_type",
                          fmt::format("is mqa in the {} block of a stage: not supported",
                                      first ? "first" : "last"));
    }
    block.before = FERRY_TRY(fields.integer_or("dw_kernel_size", {1, kKernelRange.max}, 3));
    block.heads = FERRY_TRY(fields.integer_or("num_heads", kHeadRange, 8));
    block.head_dim = FERRY_TRY(fields.integer_or("key_dim", kHeadDimRange, 64));
    block.kv_stride = FERRY_TRY(fields.integer_or("kv_stride", kKvStrideRange, 1));
    const int64_t values = FERRY_TRY(fields.integer_or("value_dim", kHeadDimRange, 64));
    if (values != block.head_dim) {
      return fields.error(ErrorCode::kUnsupported, "value_dim",
                          fmt::format("is {}, key_dim {}: not supported", values, block.head_dim));
    }
    if (block.heads * block.head_dim <= kChannelRange.max) return {};
    return fields.bad("num_heads",
                      fmt::format("is {}: too many for heads of {}", block.heads, block.head_dim));
  }

  Status check_widths(const JsonFields& fields) {
    const MobileNetBlock& block = out_.stages.back().back();
    if (block.out <= kChannelRange.max && block.middle <= kChannelRange.max) return {};
    return fields.bad("out_chs", fmt::format("makes blocks of {} and {} channels, where {} are the "
                                             "limit",
                                             block.middle, block.out, kChannelRange.max));
  }

  // -- what is behind the stages

  Status read_fusion() {
    const auto states = static_cast<int64_t>(out_.stages.size()) + 1;
    std::set<int64_t> fused = {states - 2, states - 1};
    out_.side = 16;
    if (args_ != nullptr) {
      if (args_->find(kFused) != nullptr) fused = FERRY_TRY(read_fused(states));
      out_.side = FERRY_TRY(args_->integer_or("msfa_output_resolution", {1, kMostSide}, 16));
    }
    out_.fused.assign(fused.begin(), fused.end());
    out_.middle = rounded(static_cast<double>(out_.fused_channels() * kFusionExpansion));
    return {};
  }

  // A number stands for so many of the last outputs.
  Result<std::set<int64_t>> read_fused(int64_t states) const {
    const json* stated = args_->find(kFused);
    if (stated->is_number()) {
      const int64_t last = FERRY_TRY(args_->required(kFused, {1, states}));
      std::set<int64_t> all;
      for (int64_t i = states - last; i < states; ++i) all.insert(i);
      return all;
    }
    const auto list = FERRY_TRY(args_->integers(kFused, {-states, states - 1}));
    std::set<int64_t> all;
    for (const int64_t index : list.value_or(std::vector<int64_t>())) {
      if (all.insert(index < 0 ? states + index : index).second) continue;
      return args_->bad(kFused, "names an output twice");
    }
    if (all.empty()) return args_->bad(kFused, "names no output");
    return all;
  }

  const JsonFields& vision_;
  const JsonFields* args_;
  MobileNetConfig& out_;
  double multiplier_ = 1.0;
  int64_t channels_ = 0;  // of the output of the last block
};

}  // namespace

Status read_mobilenet(const JsonFields& outer, std::string_view rows_key, const JsonFields& vision,
                      VisionConfig& config) {
  const std::string name = FERRY_TRY(vision.text("architecture")).value_or(kArchitecture);
  if (name != kArchitecture) {
    return vision.error(ErrorCode::kUnsupported, "architecture",
                        fmt::format("is {}; {} is supported", quoted(name, 40), kArchitecture));
  }
  config.hidden_size = FERRY_TRY(vision.required("hidden_size", kSizeRange));
  if (config.hidden_size != kWidth) {
    return vision.error(
        ErrorCode::kUnsupported, "hidden_size",
        fmt::format("is {}: {} gives rows of {}", config.hidden_size, name, kWidth));
  }
  MobileNetConfig& out = config.mobilenet.emplace();
  const auto args = FERRY_TRY(vision.object(kArgs));
  FERRY_RETURN_IF_ERROR(MobileNetReader(vision, args ? &*args : nullptr, out).read());
  config.image_size = kImageSize;
  config.norm_eps = 1e-6;
  config.num_layers = 0;
  for (const auto& stage : out.stages) config.num_layers += std::ssize(stage);
  const int64_t rows = FERRY_TRY(outer.required(rows_key, {1, kMostSide * kMostSide}));
  if (rows == out.side * out.side) return {};
  return outer.error(
      ErrorCode::kUnsupported, rows_key,
      fmt::format("is {}, and the vision tower gives {} rows", rows, out.side * out.side));
}

}  // namespace ferry::converters
