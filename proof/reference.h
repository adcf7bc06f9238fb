// Reference reads prompts and the outputs that the original model computed for them from a tensor
// file. docs/verifying.md lists the names; a '/' in a name counts as '.'.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "core/tensor_source.h"

namespace ferry::proof {

// The types of the tokens of a prompt, i64 [1,T], where they are not all 0.
inline constexpr const char* kTokenTypeIds = "token_type_ids";

struct ReferencePrompt {
  std::string name;  // such as "short"; empty for the prompt of a file without prefixes
  std::vector<int64_t> input_ids;  // empty where the model takes sound alone
  // Maps tensor names without the prefix ("logits", "cache.0.key") to indices of entries.
  std::map<std::string, size_t> tensors;
  bool has(const std::string& tensor) const { return tensors.contains(tensor); }
  bool has_videos() const { return has("pixel_values_videos") || has("video_grid_thw"); }
  bool has_stills() const { return has("pixel_values") || has("image_grid_thw"); }
  bool needs_images() const { return has("pixel_values") || has("image_features") || has_videos(); }
  bool needs_sound() const {
    return has("input_features") || has("input_values") || has("audio_features");
  }
  bool needs_source() const { return has("source_ids"); }
};

class Reference {
 public:
  // `source` must outlive the Reference. kBadInput unless there is at least one prompt, and every
  // tensor belongs to one.
  static Result<Reference> open(const TensorSource& source);

  const std::string& path() const { return source_->path(); }
  const std::vector<ReferencePrompt>& prompts() const { return prompts_; }
  // Takes hidden_states.`layers` of f32 [1,T,width] for last_hidden_state, in prompts without that:
  // transformers records one tensor under both names.
  void name_last_states(int64_t layers, int64_t width);
  const Shape& shape(const ReferencePrompt& prompt, const std::string& tensor) const;

  // Checks what doubles() requires of a tensor, without keeping the values.
  Status check(const ReferencePrompt& prompt, const std::string& tensor,
               const Shape& expected) const;
  // Returns all values of a floating-point tensor, which must have this shape and be finite.
  Result<std::vector<double>> doubles(const ReferencePrompt& prompt, const std::string& tensor,
                                      const Shape& expected) const;
  Result<std::vector<float>> floats(const ReferencePrompt& prompt, const std::string& tensor,
                                    const Shape& expected) const;
  // Returns all values of an i64 or i32 tensor, which must have this shape.
  Result<std::vector<int64_t>> integers(const ReferencePrompt& prompt, const std::string& tensor,
                                        const Shape& expected) const;
  // Returns all values of an i64 or i32 tensor of rank 1, or of rank 2 with one row.
  Result<std::vector<int64_t>> ids(const ReferencePrompt& prompt, const std::string& tensor) const;

 private:
  explicit Reference(const TensorSource& source) : source_(&source) {}
  Result<std::vector<int64_t>> read_ids(size_t entry) const;
  Status check_type(const TensorEntry& entry, const Shape& expected) const;
  Result<std::vector<int64_t>> read_integers(size_t entry) const;

  const TensorSource* source_;
  std::vector<ReferencePrompt> prompts_;
};

// Returns the types of the prompt's tokens, none where the reference has none.
Result<std::vector<int64_t>> token_types(const Reference& reference, const ReferencePrompt& prompt);

// Returns "FILE: prompt 'NAME'" for messages.
std::string name_of(const Reference& reference, const ReferencePrompt& prompt);

// A tensor that a reference may have, and the probe, buffer or output of a bundle that it is
// compared with. docs/verifying.md lists the names.
struct ReferenceTensor {
  enum class Kind {
    kHidden,        // probe, [1,T,hidden_size]
    kRouterLogits,  // probe, [1,T,experts]
    kKey,           // KV cache, [1,heads,T,head_dim]; the buffer is [1,context,heads,head_dim]
    kValue,         // KV cache, with the shapes of kKey
    kConvState,     // buffer, with an equal shape in the bundle
    kRecurrentState,
    kVision,  // probe of the vision encoder, [tiles,patches,width], or image_features; probe of the
              // encoder that a decoder attends to, [1,rows,width]
    kState,   // output of a text encoder, [1,T,hidden_size] or [1,T,labels]
    kVector,  // output of a text encoder, [1,D] or [1,labels]
  } kind = Kind::kHidden;
  std::string name;    // name in the reference, such as "hidden_states.3" or "cache.0.key"
  std::string source;  // name of the probe, buffer or output of the bundle
  // Layer that computes the tensor; -1: the embedding; `layers`: what follows the last layer.
  int64_t layer = 0;

  // Whether the tensor is a probe of the text decoder.
  bool is_probe() const { return kind == Kind::kHidden || kind == Kind::kRouterLogits; }
  bool is_kv_cache() const { return kind == Kind::kKey || kind == Kind::kValue; }
  // Whether the tensor is an output of a text encoder; decoders give logits instead.
  bool is_encoded() const { return kind == Kind::kState || kind == Kind::kVector; }
};

// Returns all tensors of a model of `layers` layers, in the order in which the model computes them.
std::vector<ReferenceTensor> reference_tensors(int64_t layers);

// Returns the name of the tensor with the experts that each position passed through: i64
// [1,T,experts per token] for the prompt, i64 [1,G-1,experts per token] for the continuation.
std::string route_name(int64_t layer);
std::string greedy_route_name(int64_t layer);

}  // namespace ferry::proof
