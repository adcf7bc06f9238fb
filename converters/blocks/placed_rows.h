// Rows of embeddings that state their own places. The text decoder of one program of all components
// takes rows alone, because the official MultimodalRunner gives it no other input. So each row has
// columns behind the embedding that say what other programs have inputs for:
//
//   hidden_size      the embedding
//   K hidden_size    what the outputs of the first K layers get added (DeepStack)
//   1                where the rows of an image attend to each other: the rows of the image behind
//                    this one; 0 for text
//   1                where layers have inputs of their own: the token
//   3                where images have places in three dimensions: what the position of the next
//                    row is greater by, and the row and the column in the image; 1, 0, 0 for text
//
// The decoder keeps the steps between positions in a buffer, as it keeps keys and values, so that
// the places do not depend on how a sequence is cut into calls. Source of the places: transformers,
// get_rope_index() of models/qwen2_vl.
#pragma once

#include <vector>

#include "converters/blocks/blocks.h"
#include "converters/blocks/decoder_context.h"
#include "converters/build_options.h"
#include "converters/config/model_config.h"

namespace ferry::converters {

// Returns whether rows need columns of their own in one program of all components.
bool has_placed_rows(const ModelConfig& config);

// Returns the width of a row: hidden_size unless the program has placed rows.
int64_t row_width(const ModelConfig& config, const BuildOptions& options);

// Returns the rows of a text, f32 [1,T,row_width()], of its tokens i64 [1,T] and their embeddings
// [1,T,hidden_size].
ValueId placed_text(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options,
                    ValueId tokens, ValueId embeddings);

// Returns the rows of an image of `shape` blocks, f32 [1,N,row_width()]. `features` and the K
// values of `deepstack` are f32 [1,N,hidden_size].
ValueId placed_image(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options,
                     ValueId features, const std::vector<ValueId>& deepstack, ImageShape shape);

// Returns the rows of a sound, f32 [1,N,row_width()], of features f32 [1,N,hidden_size]. Beside
// their tokens they are as rows of a text.
ValueId placed_sound(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options,
                     ValueId features);

// Reads the columns of `rows` [1,T,row_width()] into the context. Returns the embeddings.
ValueId read_placed_rows(GraphBuilder& b, DecoderContext& c, ValueId rows);

}  // namespace ferry::converters
