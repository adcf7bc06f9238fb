// Names for the ports of programs that come without a manifest: by position, as ExecuTorch's
// exporters order them, and only where dtype and shape are those of that role. Everything else is
// refused with file, method and port. docs/running.md describes the order.
#pragma once

#include <optional>
#include <string>

#include "core/dtype.h"
#include "core/result.h"
#include "formats/pte/program.h"
#include "packer/manifest.h"
#include "packer/stated_values.h"

namespace ferry::packer {

// (tokens i64 [1,T] or embeddings f32 [1,T,E], input_pos i64 [1]) -> logits f32 [1,V] or [1,T,V]
Result<ManifestMethod> name_stateful_decoder(const pte::Method& method, const std::string& file);

// tokens i32 [1,A] or embeddings f32 [1,A,E], attention_mask [1,1,A,S], window_mask of the same
// shape where there is a second mask, input_pos i32 [1,A], keys of all layers, values of all
// layers, states -> logits, new keys, new values, new states. Layers are numbered from 0, without
// those that have no cache. `caches` is the number of keys and values where another method has told
// it: states cannot be told from caches where a call is as long as they are.
Result<ManifestMethod> name_static_decoder(const pte::Method& method, const StatedValues& stated,
                                           std::optional<size_t> caches);

// tokens of `ids` [1,T] -> embeddings f32 [1,T,E]
Result<ManifestMethod> name_token_embedding(const pte::Method& method, DType ids,
                                            const std::string& file);

// pixel_values f32 [1,3,H,W] -> image_features f32 [1,N,E]
Result<ManifestMethod> name_vision_encoder(const pte::Method& method, const std::string& file);

// nullptr where there is none.
const ManifestPort* find_port(const std::vector<ManifestPort>& ports, std::string_view name);
// The number of k_cache and v_cache inputs.
size_t count_caches(const ManifestMethod& method);

}  // namespace ferry::packer
