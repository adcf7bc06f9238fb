#include "converters/quantized/adopt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "converters/quantized/weights.h"
#include "core/text.h"
#include "graph/recipe.h"

namespace ferry::converters {
namespace {

// Suffixes of tensors for quantised activations and caches of the original, which floats do not
// need.
constexpr std::string_view kActivationScales[] = {".activation_scale",  ".input_global_scale",
                                                  ".input_scale",       ".input_scale_ub",
                                                  ".input_zero_point",  ".k_scale",
                                                  ".k_zero_point",      ".output_scale",
                                                  ".output_zero_point", ".q_scale",
                                                  ".v_scale",           ".v_zero_point"};
constexpr const char* kUnused = "of quantised activations or caches, which floats do not have";

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

class Adopter {
 public:
  Adopter(std::unique_ptr<TensorSource> source, const QuantizationConfig& config)
      : config_(config), stored_(source->entries().size()) {
    out_.source = std::make_unique<DerivedSource>(std::move(source));
    for (size_t i = 0; i < stored_; ++i) index_.emplace(entry(i).name, i);
  }

  Result<AdoptedQuantized> run() {
    std::vector<std::optional<size_t>> derived(
        stored_);  // derived entries by the entry of their codes
    size_t count = 0;
    for (size_t i = 0; i < stored_; ++i) {
      derived[i] = FERRY_TRY(derive(i));
      if (derived[i]) ++count;
    }
    for (size_t i = 0; i < stored_; ++i) key(i, derived[i]);
    out_.notes.push_back(fmt::format("{} {} matri{} dequantised; activations are {}quantised",
                                     count, config_.method, count == 1 ? "x is" : "ces are",
                                     config_.rounds_inputs ? "" : "not "));
    if (!config_.note.empty()) out_.notes.push_back(config_.note);
    return std::move(out_);
  }

 private:
  const TensorEntry& entry(size_t index) const { return out_.source->entries()[index]; }

  std::optional<size_t> find(const std::string& name) const {
    const auto found = index_.find(name);
    return found == index_.end() ? std::nullopt : std::optional(found->second);
  }

  Failure bad(size_t index, const std::string& what) const {
    return bad_input(fmt::format("{}: {} {} {}: {}", printable(out_.source->path()),
                                 quoted(entry(index).name), entry(index).form(),
                                 to_string(entry(index).shape), what));
  }

  // Returns another tensor of the module; its absence is an error.
  Result<size_t> other(size_t codes, const std::string& name) const {
    const auto found = find(name);
    if (found) return *found;
    return bad(codes, fmt::format("{} is missing", quoted(name)));
  }

  Status expect(size_t index, const Shape& shape, std::initializer_list<DType> dtypes) const {
    if (std::ranges::count(dtypes, entry(index).dtype) == 0 || entry(index).encoding != nullptr) {
      return bad(index, fmt::format("expected {}", dtype_name(*dtypes.begin())));
    }
    if (entry(index).shape == shape) return {};
    return bad(index, fmt::format("expected the shape {}", to_string(shape)));
  }
  Status expect_scales(size_t index, const Shape& shape) const {
    return expect(index, shape, {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E8M0});
  }

  // Adds the derived tensor whose codes are in entry `index`; nullopt if the entry has no codes.
  Result<std::optional<size_t>> derive(size_t index) {
    const std::string& name = entry(index).name;
    const QuantizedForm form = config_.schemes.front().form;
    const bool across = form == QuantizedForm::kGptq || form == QuantizedForm::kAwq;
    const auto module_of = [&](std::string_view suffix) {
      return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : std::string();
    };
    if (across) {
      const std::string module = module_of(".qweight");
      return module.empty() ? std::optional<size_t>() : FERRY_TRY(derive_across(index, module));
    }
    if (form == QuantizedForm::kBlocks) {
      const std::string module = module_of("_blocks");
      return module.empty() ? std::optional<size_t>() : FERRY_TRY(derive_blocks(index, module));
    }
    if (form == QuantizedForm::kTernary || form == QuantizedForm::kRounded) {
      const std::string module = module_of(".weight");
      return module.empty() ? std::optional<size_t>() : FERRY_TRY(derive_ternary(index, module));
    }
    if (const std::string module = module_of(".weight_packed"); !module.empty()) {
      return FERRY_TRY(derive_packed(index, module));
    }
    const std::string module = module_of(".weight");
    const bool coded = entry(index).dtype == DType::kF8E4M3 || entry(index).dtype == DType::kI8;
    if (module.empty() || !coded) return std::optional<size_t>();
    return FERRY_TRY(derive_scaled(index, module));
  }

  // Refuses a quantised module that the config leaves out.
  Status check_kept(size_t index, const std::string& module) const {
    for (const std::string& kept : config_.kept) {
      if (module != kept && !module.ends_with("." + kept)) continue;
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("{}: {} is quantised, but quantization_config leaves {} out",
                      printable(out_.source->path()), quoted(entry(index).name), quoted(kept)));
    }
    return {};
  }

  Result<std::optional<size_t>> add(const std::string& module, Shape shape,
                                    std::vector<size_t> parts,
                                    std::unique_ptr<Derivation> derivation,
                                    const char* suffix = ".weight") {
    FERRY_RETURN_IF_ERROR(check_kept(parts.front(), module));
    for (const size_t part : parts) used_.insert(part);
    // The dtype is that of the model that was quantised, else that of its scales.
    const DType scales = entry(parts.size() > 1 ? parts[1] : parts[0]).dtype;
    const bool blocks = config_.schemes.front().form == QuantizedForm::kBlocks;
    const DType usual = is_castable(scales) ? scales : blocks ? DType::kBF16 : DType::kF32;
    const DType kept = config_.dtype.value_or(usual);
    const size_t made = FERRY_TRY(out_.source->add({.name = module + suffix + " (dequantised)",
                                                    .shape = std::move(shape),
                                                    .parts = std::move(parts),
                                                    .kind = config_.method,
                                                    .derivation = std::move(derivation)}));
    weights_.emplace(made,
                     KeyedTensor{module + suffix, graph::derived_tensor(*out_.source, made, kept)});
    return std::optional(made);
  }

  // How many groups a row has, and their size.
  struct Groups {
    int64_t count = 1, size = 0;
  };
  static Groups groups_of(const QuantizedScheme& scheme, int64_t inputs) {
    const int64_t size = scheme.block.columns == 0 ? inputs : scheme.block.columns;
    return {divide_up(inputs, size), size};
  }

  // Adds a matrix of GPTQ or AWQ, whose codes are packed (inputs, outputs).
  Result<std::optional<size_t>> derive_across(size_t codes, const std::string& module) {
    const QuantizedScheme& scheme = config_.schemes.front();
    const bool awq = scheme.form == QuantizedForm::kAwq;
    const int64_t per = 32 / scheme.bits;
    const Shape shape = entry(codes).shape;
    if (shape.size() != 2 || shape[0] <= 0 || shape[1] <= 0 || shape[0] > INT32_MAX ||
        shape[1] > INT32_MAX) {
      return bad(codes, "expected a matrix");
    }
    FERRY_RETURN_IF_ERROR(expect(codes, shape, {DType::kI32, DType::kU32}));
    PackedWeight w = {.bits = scheme.bits,
                      .outputs = awq ? shape[1] * per : shape[1],
                      .inputs = awq ? shape[0] : shape[0] * per,
                      .zero_offset = config_.zero_offset,
                      .scales_across = true};
    const Groups groups = groups_of(scheme, w.inputs);
    w.groups = groups.count;
    w.group_size = groups.size;
    if (w.outputs % per != 0) return bad(codes, fmt::format("expected outputs in {}s", per));
    const size_t zeros = FERRY_TRY(other(codes, module + ".qzeros"));
    w.scales = FERRY_TRY(other(codes, module + ".scales"));
    w.codes = {codes, true, awq, awq};
    w.zeros = PackedIntegers{zeros, true, true, awq};
    FERRY_RETURN_IF_ERROR(expect(zeros, {w.groups, w.outputs / per}, {DType::kI32, DType::kU32}));
    FERRY_RETURN_IF_ERROR(expect_scales(w.scales, {w.groups, w.outputs}));
    std::vector<size_t> parts = {codes, w.scales, zeros};
    if (!awq) w.group_of = find(module + ".g_idx");
    if (config_.needs_groups && !w.group_of) FERRY_TRY(other(codes, module + ".g_idx"));
    if (w.group_of) {
      FERRY_RETURN_IF_ERROR(expect(*w.group_of, {w.inputs}, {DType::kI32}));
      parts.push_back(*w.group_of);
    }
    return add(module, {w.outputs, w.inputs}, std::move(parts), decode_packed(w));
  }

  // Reads the sizes of the matrix, which the packed codes do not determine.
  Result<Shape> packed_shape(size_t codes, size_t entry_of_shape) const {
    FERRY_RETURN_IF_ERROR(expect(entry_of_shape, {2}, {DType::kI64, DType::kI32}));
    const bool wide = entry(entry_of_shape).dtype == DType::kI64;
    std::array<int64_t, 2> sizes = {};
    std::array<int32_t, 2> narrow = {};
    const std::span<std::byte> bytes =
        wide ? std::span<std::byte>(std::as_writable_bytes(std::span(sizes)))
             : std::span<std::byte>(std::as_writable_bytes(std::span(narrow)));
    FERRY_RETURN_IF_ERROR(out_.source->read(entry_of_shape, 0, bytes));
    if (!wide) std::ranges::copy(narrow, sizes.begin());
    const Shape& stored = entry(codes).shape;
    const bool fits = stored.size() == 2 && sizes[0] == stored[0] && sizes[0] > 0 && sizes[1] > 0 &&
                      sizes[1] <= INT32_MAX;
    if (!fits) {
      return bad(entry_of_shape,
                 fmt::format("says [{}, {}] of {}", sizes[0], sizes[1], to_string(stored)));
    }
    return Shape{sizes[0], sizes[1]};
  }

  // Returns the one scheme whose packed codes and scales have these shapes.
  Result<QuantizedScheme> scheme_of(size_t codes, size_t scales, const Shape& shape) const {
    for (const QuantizedScheme& scheme : config_.schemes) {
      if (scheme.form != QuantizedForm::kPacked) continue;
      const Groups groups = groups_of(scheme, shape[1]);
      const Shape packed = {shape[0], divide_up(shape[1], 32 / scheme.bits)};
      const Shape scale_shape = scheme.block.rows == 0 ? Shape{1} : Shape{shape[0], groups.count};
      if (entry(codes).shape == packed && entry(scales).shape == scale_shape) return scheme;
    }
    return bad(codes, fmt::format("no group of quantization_config has such codes with the scales "
                                  "{}",
                                  to_string(entry(scales).shape)));
  }

  // Adds a matrix of MXFP4 blocks (.., rows, blocks, 16), under the key of the blocks.
  Result<std::optional<size_t>> derive_blocks(size_t codes, const std::string& module) {
    const size_t scales = FERRY_TRY(other(codes, module + "_scales"));
    Shape shape = entry(codes).shape;
    FERRY_RETURN_IF_ERROR(expect(codes, shape, {DType::kU8}));
    const bool fits = shape.size() > 2 && shape.back() == kMxBlock / 2 &&
                      std::ranges::all_of(shape, [](int64_t size) { return size > 0; });
    if (!fits) return bad(codes, fmt::format("expected blocks of {} bytes", kMxBlock / 2));
    shape.pop_back();
    FERRY_RETURN_IF_ERROR(expect(scales, shape, {DType::kU8}));
    const int64_t columns = shape.back() * kMxBlock;
    int64_t rows = 1;  // the file has all of them, so the product fits
    for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
    return add(module, {rows, columns}, {codes, scales},
               decode_blocks({.blocks = codes, .scales = scales, .columns = columns}), "_blocks");
  }

  // Adds a matrix of BitNet: one that has a scale, or in floats any matrix of a layer.
  Result<std::optional<size_t>> derive_ternary(size_t weight, const std::string& module) {
    constexpr int64_t kRowsOfByte = 4;
    const Shape shape = entry(weight).shape;
    const bool rounds = config_.schemes.front().form == QuantizedForm::kRounded;
    const std::optional<size_t> scale = find(module + "." + config_.scale_suffix);
    const bool is_matrix = shape.size() == 2 && shape[0] > 0 && shape[1] > 0;
    if (rounds ? !is_matrix || module.find("layers.") == std::string::npos : !scale) {
      return std::optional<size_t>();
    }
    if (!is_matrix || shape[0] > INT32_MAX) return bad(weight, "expected a matrix");
    TernaryWeight w = {.weight = weight, .rows = shape[0], .columns = shape[1]};
    w.divides = config_.divides;
    std::vector<size_t> parts = {weight};
    if (rounds) {
      FERRY_RETURN_IF_ERROR(expect_scales(weight, shape));
      return add(module, shape, std::move(parts), decode_ternary(w));
    }
    w.scale = scale;
    parts.push_back(*scale);
    FERRY_RETURN_IF_ERROR(expect_scales(*scale, {1}));
    if (entry(weight).dtype == DType::kU8) {
      w.rows = kRowsOfByte * shape[0];
    } else if (config_.divides) {
      return bad(weight, "expected U8");
    } else {
      FERRY_RETURN_IF_ERROR(expect_scales(weight, shape));
    }
    return add(module, {w.rows, w.columns}, std::move(parts), decode_ternary(w));
  }

  // Adds a matrix of compressed-tensors, whose rows are packed codes.
  Result<std::optional<size_t>> derive_packed(size_t codes, const std::string& module) {
    const size_t sizes = FERRY_TRY(other(codes, module + ".weight_shape"));
    const size_t scales = FERRY_TRY(other(codes, module + ".weight_scale"));
    const Shape shape = FERRY_TRY(packed_shape(codes, sizes));
    FERRY_RETURN_IF_ERROR(expect(codes, entry(codes).shape, {DType::kI32}));
    const QuantizedScheme scheme = FERRY_TRY(scheme_of(codes, scales, shape));
    if (scheme.block.rows == 0) return bad(scales, "one scale for packed codes is not supported");
    FERRY_RETURN_IF_ERROR(expect_scales(scales, entry(scales).shape));
    const Groups groups = groups_of(scheme, shape[1]);
    PackedWeight w = {.bits = scheme.bits,
                      .outputs = shape[0],
                      .inputs = shape[1],
                      .groups = groups.count,
                      .group_size = groups.size,
                      .codes = {codes},
                      .scales = scales};
    std::vector<size_t> parts = {codes, scales, sizes};
    if (scheme.has_zero_points) {
      const size_t zeros = FERRY_TRY(other(codes, module + ".weight_zero_point"));
      parts.push_back(zeros);
      if (entry(zeros).dtype == DType::kI8) {
        FERRY_RETURN_IF_ERROR(expect(zeros, {w.outputs, w.groups}, {DType::kI8}));
        w.plain_zeros = zeros;
      } else {
        const int64_t per = 32 / scheme.bits;
        FERRY_RETURN_IF_ERROR(expect(zeros, {divide_up(w.outputs, per), w.groups}, {DType::kI32}));
        w.zeros = PackedIntegers{zeros, false, true, false};
      }
    }
    w.group_of = find(module + ".weight_g_idx");
    // compressed-tensors initialises groups with -1, and GPTQ's kernels do not know that value.
    w.may_leave_groups = true;
    if (w.group_of) {
      FERRY_RETURN_IF_ERROR(expect(*w.group_of, {w.inputs}, {DType::kI32}));
      parts.push_back(*w.group_of);
    }
    return add(module, shape, std::move(parts), decode_packed(w));
  }

  // Returns the sizes of a block, where a size of 0 stands for the whole matrix.
  static ScaleBlock whole_block(const ScaleBlock& block, const Shape& shape) {
    return {block.rows == 0 ? shape[0] : block.rows, block.columns == 0 ? shape[1] : block.columns};
  }

  Result<std::optional<size_t>> derive_scaled(size_t weight, const std::string& module) {
    const size_t scales = FERRY_TRY(other(weight, module + "." + config_.scale_suffix));
    const Shape shape = entry(weight).shape;
    if (shape.size() != 2 || shape[0] <= 0 || shape[1] <= 0) {
      return bad(weight, "expected a matrix");
    }
    const bool is_float = entry(weight).dtype == DType::kF8E4M3;
    const bool known = std::ranges::any_of(config_.schemes, [&](const QuantizedScheme& scheme) {
      return scheme.form == QuantizedForm::kScaled && scheme.is_float == is_float;
    });
    if (!known) return bad(weight, "quantization_config has no codes of this dtype");
    int64_t given = 1;
    for (const int64_t size : entry(scales).shape) given *= size;
    for (const QuantizedScheme& scheme : config_.schemes) {
      if (scheme.form != QuantizedForm::kScaled || scheme.is_float != is_float) continue;
      ScaledWeight w = {.weight = weight, .scales = scales, .columns = shape[1]};
      w.block = whole_block(scheme.block, shape);
      w.bits = scheme.bits;
      // Where modules of 4 and of 8 bits have the same blocks, nothing tells which this one is.
      for (const QuantizedScheme& other : config_.schemes) {
        const bool alike = other.form == scheme.form && other.block == scheme.block;
        if (alike) w.bits = std::max(w.bits, other.bits);
      }
      const Shape grid = {divide_up(shape[0], w.block.rows), divide_up(shape[1], w.block.columns)};
      // One scale may have no dimension or one; a scale for each row may have one dimension or two.
      const bool flat = grid[1] == 1 && given == grid[0] && entry(scales).shape.size() < 2;
      if (!flat && entry(scales).shape != grid) continue;
      FERRY_RETURN_IF_ERROR(expect_scales(scales, entry(scales).shape));
      std::vector<size_t> parts = {weight, scales};
      if (scheme.has_zero_points) {
        w.zeros = FERRY_TRY(other(weight, module + ".weight_zero_point"));
        FERRY_RETURN_IF_ERROR(expect(*w.zeros, entry(scales).shape, {DType::kI8}));
        parts.push_back(*w.zeros);
      }
      return add(module, shape, std::move(parts), decode_scaled(w));
    }
    return bad(scales, fmt::format("quantization_config has no such scales for {} {}",
                                   quoted(entry(weight).name), to_string(shape)));
  }

  // Gives entry `index` its key. A derived tensor takes the place of its codes.
  void key(size_t index, const std::optional<size_t>& derived) {
    if (derived) {
      out_.tensors.tensors.push_back(std::move(weights_.at(*derived)));
      return;
    }
    if (used_.contains(index)) return;
    const std::string& name = entry(index).name;
    KeyedTensor tensor = {name, graph::whole_tensor(*out_.source, index)};
    const bool unused = std::ranges::any_of(
        kActivationScales, [&](std::string_view suffix) { return name.ends_with(suffix); });
    if (unused) tensor.unused = kUnused;
    out_.tensors.tensors.push_back(std::move(tensor));
  }

  const QuantizationConfig& config_;
  size_t stored_;  // number of stored entries
  AdoptedQuantized out_;
  std::unordered_map<std::string, size_t> index_;    // stored entries by name
  std::unordered_map<size_t, KeyedTensor> weights_;  // by derived entry
  std::unordered_set<size_t> used_;                  // parts of derived tensors
};

}  // namespace

Result<AdoptedQuantized> adopt_quantized(std::unique_ptr<TensorSource> source,
                                         const QuantizationConfig& config) {
  return Adopter(std::move(source), config).run();
}

}  // namespace ferry::converters
