// Names the inputs and outputs of programs that come without a manifest. Names follow from the
// positions that ExecuTorch's exporters use, and dtype and shape must fit the name. Everything else
// is refused with file, method and position. docs/running.md describes the order.
#pragma once

#include <optional>
#include <string>

#include "core/dtype.h"
#include "core/result.h"
#include "formats/pte/program.h"
#include "packer/manifest.h"
#include "packer/stated_values.h"

namespace ferry::packer {

// Signature: (tokens i64 [1,T] or embeddings f32 [1,T,E], input_pos i64 [1]) -> logits f32 [1,V] or
// [1,T,V]
Result<ManifestMethod> name_stateful_decoder(const pte::Method& method, const std::string& file);

// Signature: tokens i32 [1,A] or embeddings f32 [1,A,E], attention_mask [1,1,A,S], window_mask of
// an equal shape if there is a second mask, input_pos i32 [1,A], keys of all layers, values of all
// layers, states -> logits, new keys, new values, new states. Layers without a cache are left out,
// and the others are numbered from 0. `caches` is the number of keys and values if another method
// has told it, because states and caches look alike if a call is as long as a state.
Result<ManifestMethod> name_static_decoder(const pte::Method& method, const StatedValues& stated,
                                           std::optional<size_t> caches);

// Signature: tokens of dtype `ids` [1,T] -> embeddings f32 [1,T,E]
Result<ManifestMethod> name_token_embedding(const pte::Method& method, DType ids,
                                            const std::string& file);

// Signature: pixel_values f32 [1,3,H,W] -> image_features f32 [1,N,E]
Result<ManifestMethod> name_vision_encoder(const pte::Method& method, const std::string& file);

// Returns nullptr if there is none of this name.
const ManifestPort* find_port(const std::vector<ManifestPort>& ports, std::string_view name);
// Returns the number of k_cache and v_cache inputs.
size_t count_caches(const ManifestMethod& method);

}  // namespace ferry::packer
