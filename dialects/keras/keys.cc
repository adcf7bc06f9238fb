#include "dialects/keras/keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "converters/family.h"
#include "core/checked.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

// -- paths

// Returns the path without the "layers/NAME_backbone/" that a whole task puts before it.
std::string_view without_task(std::string_view path) {
  constexpr std::string_view kLayers = "layers/", kBackbone = "_backbone/layers/";
  const size_t at = path.find('/', kLayers.size());
  if (!path.starts_with(kLayers) || at == std::string_view::npos) return path;
  const size_t end = at + 1;  // behind "layers/NAME/"
  const size_t suffix = kBackbone.size() - kLayers.size();
  if (end < suffix || path.substr(end - suffix, kBackbone.size()) != kBackbone) return path;
  return path.substr(end);
}

// "PATH/vars/N"
bool is_variable(std::string_view path) {
  const size_t number = path.find_last_not_of("0123456789") + 1;
  return number < path.size() && path.substr(0, number).ends_with("/vars/");
}

// -- the table of one model

// Path of the output matrix of a model whose head is not its embedding.
constexpr std::string_view kKerasHead = "layers/reversible_embedding/vars/1";

// Returns whether a layer is of the given kind.
bool is_of_kind(KerasLayer kind, const ModelConfig& config, int64_t layer) {
  const bool experts = config.has_experts(layer);
  const auto at = static_cast<size_t>(layer);
  const bool linear =
      at < config.layer_types.size() && config.layer_types[at] == LayerType::kLinearAttention;
  switch (kind) {
    case KerasLayer::kAny:
      return true;
    case KerasLayer::kDense:
      return !experts;
    case KerasLayer::kExperts:
      return experts;
    case KerasLayer::kAttention:
      return !linear;
    case KerasLayer::kLinearAttention:
      return linear;
  }
  return false;
}

// Returns the size that a letter of a shape stands for, and 0 for a letter without a meaning:
//   V vocabulary, D hidden size, M MLP, P positions, 1 one
//   H heads, K key-value heads, d head size, f d / 2, u 2 d, t 3 d, Q H * d, R K * d
//   E experts, X size of an expert, Y 2 X, S size of the shared expert
//   linear attention: C channels of the convolution, k its kernel, n value heads, w size of a value
//   head, W n * w
int64_t keras_dim(char letter, const ModelConfig& config) {
  const MoeConfig& moe = config.moe;
  const LinearAttentionConfig& linear = config.linear;
  const std::pair<char, int64_t> sizes[] = {{'V', config.vocab_size},
                                            {'D', config.hidden_size},
                                            {'M', config.intermediate_size},
                                            {'P', config.max_positions},
                                            {'H', config.num_heads},
                                            {'K', config.num_kv_heads},
                                            {'d', config.head_dim},
                                            {'f', config.head_dim / 2},
                                            {'u', 2 * config.head_dim},
                                            {'t', 3 * config.head_dim},
                                            {'Q', config.q_size()},
                                            {'R', config.kv_size()},
                                            {'E', moe.experts},
                                            {'X', moe.expert_size},
                                            {'Y', 2 * moe.expert_size},
                                            {'S', moe.shared_size},
                                            {'C', linear.conv_channels()},
                                            {'k', linear.conv_kernel},
                                            {'n', linear.value_heads},
                                            {'w', linear.value_dim},
                                            {'W', linear.value_size()},
                                            {'1', 1}};
  for (const auto& [name, size] : sizes) {
    if (name == letter) return size;
  }
  return 0;
}

struct KnownVariable {
  std::string key;
  KerasOp op;
  Shape shape;  // as stored
};

struct KnownVariables {
  std::string_view unread;  // KerasArchitecture::unread
  std::unordered_map<std::string, KnownVariable> by_path;
  // The paths of the parts of each key, in order. Keys are in the order of the tables.
  std::vector<std::pair<std::string, std::vector<std::string>>> by_key;
};

const KerasArchitecture* find_architecture(const ModelConfig& config) {
  for (const FamilySpec* family : all_families()) {
    for (const KerasArchitecture& known : family->keras) {
      if (family->type_of(known) == config.text_type) return &known;
    }
  }
  return nullptr;
}

std::vector<std::string_view> known_types() {
  std::vector<std::string_view> types;
  for (const FamilySpec* family : all_families()) {
    for (const KerasArchitecture& known : family->keras) types.push_back(family->type_of(known));
  }
  return types;
}

class KnownVariablesOf {
 public:
  KnownVariablesOf(const KerasArchitecture& family, const ModelConfig& config) : config_(config) {
    known_.unread = family.unread;
    for (const KerasRow& row : family.outside) add("", "", row);
    if (!family.final_norm.empty()) {
      add("", "",
          {fmt::format("layers/{}/vars/0", family.final_norm), "model.norm.weight", KerasOp::kCopy,
           "D"});
    }
    for (int64_t layer = 0; layer < config.num_layers; ++layer) add_layer(family, layer);
  }
  KnownVariables take() { return std::move(known_); }

 private:
  void add_layer(const KerasArchitecture& family, int64_t layer) {
    // Keras gives the first of several layers no number.
    const std::string number = layer == 0 ? "" : fmt::format("_{}", layer);
    const std::string path = fmt::format("layers/{}{}/", family.decoder, number);
    const std::string key = fmt::format("{}{}.", family.layers, layer);
    for (const KerasLayerRows& table : family.inside) {
      if (!is_of_kind(table.kind, config_, layer)) continue;
      for (const KerasRow& row : table.rows) add(path, key, row);
    }
  }

  void add(const std::string& path, const std::string& key, const KerasRow& row) {
    Shape shape;
    for (const char letter : row.shape) shape.push_back(keras_dim(letter, config_));
    std::string whole_path = path + std::string(row.path), whole_key = key + std::string(row.key);
    const auto [at, fresh] = position_.emplace(whole_key, known_.by_key.size());
    if (fresh) known_.by_key.emplace_back(whole_key, std::vector<std::string>{});
    known_.by_key[at->second].second.push_back(whole_path);
    known_.by_path.emplace(std::move(whole_path),
                           KnownVariable{std::move(whole_key), row.op, std::move(shape)});
  }

  const ModelConfig& config_;
  KnownVariables known_;
  std::unordered_map<std::string, size_t> position_;  // in by_key
};

// -- operations

// A variable in the arrangement of Hugging Face. If Hugging Face has a matrix for each expert,
// there is one piece for each expert.
struct Arranged {
  Shape shape;
  std::vector<StridedPiece> pieces;
};

StridedPiece walk_of(size_t entry, int64_t offset, std::initializer_list<StridedAxis> axes) {
  StridedPiece piece{.tensor = entry, .offset = offset};
  for (const StridedAxis& axis : axes) add_axis(piece, axis);
  return piece;
}

Arranged transposed_experts(const Shape& s, size_t entry) {
  Arranged made{{s[0], s[2], s[1]}, {}};
  for (int64_t expert = 0; expert < s[0]; ++expert) {
    made.pieces.push_back(walk_of(entry, expert * s[1] * s[2], {{s[2], 1}, {s[1], s[2]}}));
  }
  return made;
}

// Entry `entry` is a tensor of shape `s`.
Arranged arranged(KerasOp op, const Shape& s, size_t entry) {
  const int64_t elements = checked_numel(s).value_or(0);
  const StridedPiece all = run_piece(entry, 0, elements);
  switch (op) {
    case KerasOp::kCopy:
      return {s, {all}};
    case KerasOp::kFlatten:
      return {{elements}, {all}};
    case KerasOp::kMergeFirst:
      return {{s[0] * s[1], s[2]}, {all}};
    case KerasOp::kTranspose:
      return {{s[1], s[0]}, {walk_of(entry, 0, {{s[1], 1}, {s[0], s[1]}})}};
    case KerasOp::kMergeLastTranspose: {
      const int64_t rows = s[1] * s[2];
      return {{rows, s[0]}, {walk_of(entry, 0, {{rows, 1}, {s[0], rows}})}};
    }
    case KerasOp::kMergeFirstTranspose: {
      const int64_t columns = s[0] * s[1];
      return {{s[2], columns}, {walk_of(entry, 0, {{s[2], 1}, {columns, s[2]}})}};
    }
    case KerasOp::kSwapLastMergeFirst:
      return {{s[0] * s[2], s[1]},
              {walk_of(entry, 0, {{s[0], s[1] * s[2]}, {s[2], 1}, {s[1], s[2]}})}};
    case KerasOp::kTransposeEach:
      return transposed_experts(s, entry);
    case KerasOp::kAddMiddle:
      return {{s[0], 1, s[1]}, {all}};
    case KerasOp::kAfterTwoRows: {
      // The first row describes both parts.
      const StridedPiece row = run_piece(entry, 0, s[1]);
      return {{2 + s[0], s[1]}, {row, row, all}};
    }
  }
  return {};
}

// Joins the parts to one tensor: row after row, or within the matrix of each expert.
Arranged joined(std::vector<Arranged> parts) {
  Arranged made = std::move(parts.front());
  if (parts.size() == 1) return made;
  const bool experts = made.shape.size() == 3;
  std::vector<StridedPiece> first = std::exchange(made.pieces, {});
  for (size_t i = 0; i < first.size(); ++i) {
    made.pieces.push_back(std::move(first[i]));
    for (size_t part = 1; part < parts.size(); ++part) {
      made.pieces.push_back(std::move(parts[part].pieces[i]));
    }
  }
  for (size_t part = 1; part < parts.size(); ++part) {
    made.shape[experts] += parts[part].shape[experts];
  }
  return made;
}

bool is_integer(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kU8 || dtype == DType::kI16 ||
         dtype == DType::kI32 || dtype == DType::kI64;
}

Failure unsupported(const TensorSource& source, std::string_view what) {
  return fail(ErrorCode::kUnsupported, fmt::format("{}: {}", printable(source.path()), what));
}

Status refuse_lora(const TensorSource& source) {
  for (const TensorEntry& entry : source.entries()) {
    if (!entry.name.starts_with("lora/")) continue;
    return unsupported(source,
                       fmt::format("a LoRA file of Keras, which holds no model by itself; save "
                                   "the merged weights (variable {})",
                                   quoted(entry.name)));
  }
  return {};
}

// Returns one line if one variable is wrong, and a list if several are.
Failure shape_error(const TensorSource& source, std::vector<std::string> lines) {
  if (lines.size() == 1) return bad_input(printable(source.path()) + ": " + lines.front());
  Error error{ErrorCode::kBadInput,
              fmt::format("{}: {} variables have other shapes than the config says",
                          printable(source.path()), lines.size())};
  error.details = std::move(lines);
  return Failure(std::move(error));
}

// -- the variables of a file

constexpr const char* kUnreadVision = "vision tower: only the text part is built";

// The entries by path, without the part of the path that names a task.
using FoundVariables = std::unordered_map<std::string_view, size_t>;

// Finds the known variables. The other entries go to `keyed` under their own names.
Result<FoundVariables> find_variables(const TensorSource& source, const KnownVariables& known,
                                      KeyedTensors& keyed) {
  FoundVariables found;
  std::vector<std::string> wrong;
  for (size_t i = 0; i < source.entries().size(); ++i) {
    const TensorEntry& entry = source.entries()[i];
    const std::string_view path = without_task(entry.name);
    const auto variable = known.by_path.find(std::string(path));
    if (variable == known.by_path.end()) {
      const bool unread = !known.unread.empty() && path.starts_with(known.unread);
      keyed.tensors.push_back(
          {entry.name, graph::whole_tensor(source, i), unread ? kUnreadVision : ""});
      continue;
    }
    if (is_integer(entry.dtype)) {
      return unsupported(source, fmt::format("{} is {}: quantised presets are not supported",
                                             quoted(entry.name), dtype_name(entry.dtype)));
    }
    const Shape& shape = variable->second.shape;
    if (entry.shape != shape) {
      wrong.push_back(fmt::format("shape: {} is {}, the config wants {}", quoted(entry.name),
                                  to_string(entry.shape), to_string(shape)));
      continue;
    }
    if (const auto [other, fresh] = found.emplace(path, i); !fresh) {
      return bad_input(fmt::format("{}: {} and {} are both {}", printable(source.path()),
                                   quoted(source.entries()[other->second].name), quoted(entry.name),
                                   variable->second.key));
    }
  }
  if (!wrong.empty()) return shape_error(source, std::move(wrong));
  return found;
}

// Returns the tensor of `key` if all of its parts are there. Otherwise the message names the first
// missing part.
Status add_keras_tensor(const TensorSource& source, const KnownVariables& known,
                        const FoundVariables& found, const std::string& key,
                        const std::vector<std::string>& paths, KeyedTensors& keyed) {
  std::vector<Arranged> parts;
  for (const std::string& path : paths) {
    const auto entry = found.find(path);
    if (entry == found.end()) {
      keyed.names.emplace(key, path);
      return {};
    }
    const KnownVariable& variable = known.by_path.at(path);
    parts.push_back(arranged(variable.op, variable.shape, entry->second));
  }
  keyed.names.emplace(key, paths.front());
  Arranged made = joined(std::move(parts));
  graph::Recipe recipe =
      FERRY_TRY(graph::make_recipe(source, std::move(made.pieces), std::move(made.shape), key));
  keyed.tensors.push_back({key, std::move(recipe)});
  return {};
}

}  // namespace

bool has_keras_paths(const TensorSource& source) {
  return std::ranges::any_of(source.entries(), [](const TensorEntry& entry) {
    return is_variable(entry.name) || entry.name.starts_with("lora/");
  });
}

bool has_keras_head(const TensorSource& source) {
  return std::ranges::any_of(source.entries(), [](const TensorEntry& entry) {
    return without_task(entry.name) == kKerasHead;
  });
}

Result<KeyedTensors> key_keras_tensors(const TensorSource& source, const ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(refuse_lora(source));
  const KerasArchitecture* architecture = find_architecture(config);
  if (architecture == nullptr) {
    return unsupported(source,
                       fmt::format("Keras weights of model_type {} are not supported; "
                                   "supported are {}",
                                   quoted(config.text_type), fmt::join(known_types(), ", ")));
  }
  const KnownVariables known = KnownVariablesOf(*architecture, config).take();
  KeyedTensors keyed;
  const FoundVariables found = FERRY_TRY(find_variables(source, known, keyed));
  for (const auto& [key, paths] : known.by_key) {
    FERRY_RETURN_IF_ERROR(add_keras_tensor(source, known, found, key, paths, keyed));
  }
  return keyed;
}

}  // namespace ferry::converters
