// The parts of ModelConfig that describe vision towers and audio encoders, and what makes rows of
// the text decoder of their outputs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "converters/config/mobilenet_config.h"
#include "core/tiled_picture.h"

namespace ferry::converters {

enum class Activation { kSilu, kGelu, kGeluTanh, kRelu, kRelu2, kQuickGelu };

// The layers between a vision tower and the text decoder.
enum class Connector {
  kLinear,   // one linear
  kMlp,      // layer norm, linear, activation, linear
  kAverage,  // the patches of a block are averaged; RMS norm, one linear without bias
  kMerger,   // of any shape: norm, the patches of a block side by side, linear, activation, linear
  // Any shape; RMS norm, a linear over the patches of a block, linear, activation, linear.
  kLinearMerger,
};

// A tower over images of any shape has this beside VisionConfig (Qwen2-VL and its successors,
// Pixtral). Its patches have the places of their row and column (RoPE), and `shuffle` is the side
// of the blocks that become one token each.
struct AnyShapeConfig {
  int64_t temporal_patch_size = 2;  // equal frames of a patch
  bool patch_bias = false;
  bool bias = true;                // of the output of attention and of the MLP
  bool gated_mlp = false;          // w2(activation(w1 x) * w3 x)
  int64_t window = 0;              // blocks of a side of a window; 0: all layers are full
  std::vector<int64_t> full = {};  // the layers without windows, where there are windows
  int64_t table = 0;               // rows and columns of the learned positions; 0: there are none
  std::vector<int64_t> deepstack = {};  // layers whose outputs go to the first decoder layers too
  double rope_theta = 10000.0;
  // The pairs of dimensions of a head that a row turns have every second frequency of those of the
  // whole head, those of a column the others. False: both have the frequencies of half a head.
  bool rope_in_turn = false;
  int64_t output_size = 0;  // width of the features; 0: hidden_size of the decoder
  bool operator==(const AnyShapeConfig&) const = default;
};

// A tower of Gemma 4 has this beside VisionConfig. Its tiles are lists of patches (max_patches).
struct Gemma4TowerConfig {
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;  // a multiple of 4: half of a head is turned by the column, half by the row
  int64_t positions = 0;      // rows of each of the two tables of learned positions
  bool clips = false;         // inputs and outputs of linear layers are held between stored limits
  bool standardizes = false;  // features are shifted and scaled by stored vectors
  double rope_theta = 100.0;
  bool operator==(const Gemma4TowerConfig&) const = default;
};

// How a picture becomes tiles of the tower, and their features rows of the decoder.
struct TiledPictureConfig {
  std::vector<Extent> resolutions;  // of which a picture has one, in pixels
  int64_t most_tiles = 0;  // whose features are the most of a picture; 0: there is no such number
  bool operator==(const TiledPictureConfig&) const = default;
};

// The tokens behind the rows of features of a picture (Pixtral, Mistral 3).
struct RowMarks {
  int64_t row = 0;      // behind each row but the last
  int64_t picture = 0;  // behind the last row
  bool operator==(const RowMarks&) const = default;
};

// The sizes of a vision tower and of the connector behind it, as a config states them. The tower is
// a transformer over square patches of a square image. Every s x s block of patches becomes one
// token of the text decoder, where s is `shuffle`.
struct VisionConfig {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t channels = 3;
  int64_t image_size = 0;  // pixels of a side; a multiple of patch_size; 0: any shape
  int64_t patch_size = 0;
  int64_t shuffle = 1;  // divides the patches of a side
  double norm_eps = 1e-6;
  Activation activation = Activation::kGelu;
  bool class_token = false;  // before the patches
  bool drops_first = false;  // the first row is no feature: the class token, where there is one
  bool patch_bias = true;
  bool pre_norm = false;  // before the first layer
  // The states that are features, side by side: 0 is the input of the first layer, N the output of
  // the N-th. Empty: the output of the last layer, behind the final norm.
  std::vector<int64_t> feature_layers = {};
  bool qkv_bias = true;
  bool qk_norm = false;  // RMS norm of q and k over all heads, before attention
  double qk_norm_eps = 1e-6;
  bool rms_norm = false;     // RMS norms without bias instead of layer norms
  bool layer_scale = false;  // the output of a block is multiplied by a vector
  bool final_norm = false;   // behind the last layer
  Connector connector = Connector::kLinear;
  Activation connector_activation = Activation::kGelu;
  std::optional<int64_t> image_token_id = {};  // the placeholder of a row of image features
  // The placeholder of a row of a video, and how many places in time a second is, where the groups
  // of frames of a video are not one place apart.
  std::optional<int64_t> video_token_id = {};
  std::optional<int64_t> tokens_per_second = {};
  std::string image_token = {};  // its text in the tokenizer, where the config has no id
  bool two_way_images = false;   // in the text decoder, the rows of an image attend to each other
  bool two_way_prompts = false;  // and so do all tokens of a prompt with images (PaliGemma)
  bool two_way_in_windows = false;  // of two_way_images: only in layers with windows
  std::optional<AnyShapeConfig> any_shape = {};
  std::optional<Gemma4TowerConfig> gemma4 = {};
  // Set for a tower of convolutions. It has neither heads nor patches, and the image processor
  // states image_size.
  std::optional<MobileNetConfig> mobilenet = {};
  // Set where features of tiles are put together to those of a picture (LLaVA-NeXT). Each tile has
  // the newline behind its features.
  std::optional<TiledPictureConfig> tiled = {};
  // Set where the tower gives the embeddings of these tokens too, because its caller gives no token
  // between rows of a picture.
  std::optional<RowMarks> row_marks = {};
  bool leaves_edge = false;  // pixels behind the last whole patch may be left over
  // Set where a tile is a list of up to so many patches, whose rows and columns an input states
  // (NaFlex). Then image_size is that of the table of positions, which is resized to the tile.
  int64_t max_patches = 0;
  bool connector_norm = true;  // of kMlp
  bool connector_bias = true;  // of kLinear and kMlp
  // Width between the linears of kMlp; 0 is hidden_size of the decoder. For kLinear the width that
  // the config states, if it states one.
  int64_t connector_size = 0;

  int64_t head_dim() const { return hidden_size / num_heads; }
  // Returns the patches of a side.
  int64_t grid() const { return mobilenet ? mobilenet->side : image_size / patch_size; }
  int64_t patches() const { return grid() * grid(); }
  int64_t patch_values() const {
    return channels * patch_size * patch_size * (any_shape ? any_shape->temporal_patch_size : 1);
  }
  // Returns the rows of image features that one image or tile becomes.
  int64_t image_tokens() const {
    return (rows() + (class_token ? 1 : 0) - (drops_first ? 1 : 0)) / (shuffle * shuffle);
  }
  // Returns the layers that features need.
  int64_t depth() const {
    return feature_layers.empty() ? num_layers : *std::ranges::max_element(feature_layers);
  }
  // Returns the patches of a tile, padding included.
  int64_t rows() const { return max_patches > 0 ? max_patches : patches(); }
  // Returns the width of a row of image features before the linears of the connector.
  int64_t shuffled_size() const {
    const auto states = std::max<int64_t>(1, std::ssize(feature_layers));
    return connector == Connector::kAverage ? hidden_size
                                            : hidden_size * shuffle * shuffle * states;
  }
  bool operator==(const VisionConfig&) const = default;
};

// The parts of a FastConformer beside layers of attention (Parakeet). `convolutions` over time and
// mel bins make rows of frames, each with the same kernel and stride; those behind the first have
// one filter for each channel, and a mixture of the channels follows them.
struct ConformerConfig {
  int64_t channels = 0, kernel = 0, stride = 0, convolutions = 0;
  int64_t time_kernel = 0;       // of the convolution in every layer
  bool convolution_bias = true;  // of the block of that convolution
  bool mlp_bias = true;
  bool scale_input = true;  // the input of the layers is multiplied by the root of its width
  int64_t blank = 0;        // the label of rows that add nothing to the text

  int64_t padding() const { return (kernel - 1) / 2; }
  // Returns the frames or bins that one convolution makes of `count`.
  int64_t after_one(int64_t count) const { return (count + 2 * padding() - kernel) / stride + 1; }
  // The bins behind all of them.
  int64_t bins(int64_t mel_bins) const {
    for (int64_t i = 0; i < convolutions; ++i) mel_bins = after_one(mel_bins);
    return mel_bins;
  }
  bool operator==(const ConformerConfig&) const = default;
};

// The audio encoder of Gemma 3n has these parts beside those of Gemma 4. A convolution has its own
// kernel and step over time and over bins, with as many frames of zeros behind the sound as its
// kernel is longer than one, and a column of zeros on both sides of the bins. Behind it is a norm
// over all that was heard so far. Every `reduction`-th row of the last layer becomes one of the
// text decoder, and a sound has `rows` of them: those behind its own are the embedding of a token.
struct Gemma3nAudioConfig {
  int64_t kernels[2][2] = {{3, 3}, {3, 3}};  // of each convolution: over time, over bins
  int64_t steps[2][2] = {{2, 2}, {2, 2}};
  double group_eps = 1e-3;
  int64_t reduction = 4;
  int64_t rows = 188;

  // Returns the bins behind so many convolutions; 0 where there are none.
  int64_t bins_behind(int64_t convolutions, int64_t mel_bins) const {
    for (int64_t i = 0; i < convolutions; ++i) {
      if (mel_bins + 2 < kernels[i][1]) return 0;
      mel_bins = (mel_bins + 2 - kernels[i][1]) / steps[i][1] + 1;
    }
    return mel_bins;
  }
  bool operator==(const Gemma3nAudioConfig&) const = default;
};

// The parts of an audio encoder of Gemma 4 or 3n, which is that of Universal Speech Models, beside
// its layers of two half MLPs, attention and a convolution. Two convolutions make a row of several
// frames. A row attends to `past` rows, of which it is the last, and to those before the
// `future`-th behind it; in Gemma 3n to `past` rows before it and `future` behind it. Scores have a
// part by distance, for which the reference cuts rows into chunks.
struct UsmAudioConfig {
  int64_t channels[2] = {0, 0};  // of the two convolutions
  int64_t time_kernel = 0;  // of the convolution in every layer, over a row and those before it
  int64_t chunk = 0, past = 0, future = 0;
  double cap = 50.0;       // scores become cap * tanh(score / cap)
  double residual = 0.5;   // multiplies the output of an MLP
  double greatest = 1e10;  // states are held between -greatest and greatest
  double norm_eps = 1e-6;  // of norms in and before convolutions, and of the one behind the encoder
  bool clips = true;       // inputs and outputs of linear layers are held between stored limits
  int64_t output_size = 0;                         // of the linear behind the layers; 0: none
  std::optional<Gemma3nAudioConfig> gemma3n = {};  // set for Gemma 3n

  // The mel bins of Gemma 4: its reference states them by the channels.
  int64_t mel_bins() const { return channels[0] / 4 * 4; }
  // The rows that one chunk may attend to.
  int64_t context() const { return chunk + past + future; }
  // The frames that one row of the text decoder begins with.
  int64_t row_frames() const {
    return gemma3n ? gemma3n->steps[0][0] * gemma3n->steps[1][0] * gemma3n->reduction : 4;
  }
  // Returns the rows of the text decoder that a sound of so many frames becomes.
  int64_t rows_of(int64_t frames) const {
    return gemma3n ? gemma3n->rows : (frames + row_frames() - 1) / row_frames();
  }
  bool operator==(const UsmAudioConfig&) const = default;
};

// The layers that make rows of the text decoder of the states of an audio encoder (Granite Speech).
// Learned queries attend to each other in every layer, and to the states of a window in those whose
// number `frequency` divides. Every window of `window` states becomes `queries` rows.
struct WindowProjectorConfig {
  int64_t window = 15, queries = 3;
  int64_t hidden_size = 0, intermediate_size = 0;
  int64_t num_layers = 0, num_heads = 0;
  int64_t frequency = 2;
  Activation activation = Activation::kGelu;
  double norm_eps = 1e-12;
  // The layers have MLPs for tokens of text too, which no row goes through.
  bool text_layers = false;

  bool attends_to_states(int64_t layer) const { return layer % frequency == 0; }
  bool operator==(const WindowProjectorConfig&) const = default;
};

// The audio encoder of Granite Speech has these parts beside its layers of two half MLPs, attention
// and a convolution. A row is that of `stack` log-mel frames. Rows attend to each other within
// blocks of `block` rows, with scores that have a part by distance; its table has the distances up
// to `farthest` in both directions. Behind the layer in the middle, probabilities of labels are
// added to the states.
struct GraniteAudioConfig {
  static constexpr int64_t kStack = 2;
  int64_t block = 200, farthest = 512;
  int64_t time_kernel = 15;  // of the convolution in every layer
  int64_t inner = 0;         // its channels
  int64_t labels = 0;
  // The states that the projector takes before the last, side by side: 0 is the input of the first
  // layer, N the output of the N-th.
  std::vector<int64_t> joined = {};
  WindowProjectorConfig projector = {};

  // Returns the rows of the text decoder that a sound of so many rows of frames becomes.
  int64_t rows_of(int64_t frames) const {
    return (frames + projector.window - 1) / projector.window * projector.queries;
  }
  bool operator==(const GraniteAudioConfig&) const = default;
};

// SoundRowsConfig describes how rows of an audio encoder become rows of the text decoder: by a
// linear over a group of rows, an activation and a linear (Voxtral), by one linear between norms
// (Gemma 3n and 4), or by layers of their own (Granite Speech).
struct SoundRowsConfig {
  int64_t width = 0;  // of a row of the encoder
  int64_t group = 1;  // rows of the encoder that become one
  Activation activation = Activation::kGelu;
  int64_t token_id = 0;  // the placeholder of a row
  // Whether an adapter beside the checkpoint is that of prompts with sounds, and of no others.
  bool has_adapter = false;
  bool operator==(const SoundRowsConfig&) const = default;
};

// An audio encoder, a transformer whose output the layers of the text decoder attend to
// (cross-attention); its width is hidden_size of the decoder. Or its output becomes rows of the
// text decoder, in the place of placeholders (`to_rows`). It takes log-mel frames, whose number
// two convolutions halve and which have learned positions (Whisper), or samples, of which three
// convolutions make rows with RoPE (Moonshine). Or it takes log-mel frames of any number, of which
// each few are a row (Gemma 3n and 4, Granite Speech). Or it is the whole model, a FastConformer,
// which takes log-mel frames of any number and gives the outputs of labels (Parakeet).
struct AudioConfig {
  int64_t mel_bins = 0;  // values of a frame; 0: it takes samples
  int64_t num_layers = 0;
  int64_t num_heads = 0, head_dim = 0;
  int64_t intermediate_size = 0;
  int64_t positions = 0;  // rows of the output; 0 where they follow from the length of a sound
  Activation activation = Activation::kGelu;
  bool norm_bias = true;  // of its layer norms
  // Biases of attention, in both directions and of cross-attention.
  bool query_bias = true, key_bias = false, value_bias = true, output_bias = true;

  std::optional<ConformerConfig> conformer = {};
  std::optional<UsmAudioConfig> usm = {};
  std::optional<GraniteAudioConfig> granite = {};
  std::optional<SoundRowsConfig> to_rows = {};

  // Returns the rows of the text decoder that a window of sound becomes.
  int64_t row_count() const { return positions / to_rows->group; }
  // Whether it takes log-mel frames of any number.
  bool counts_frames() const { return conformer || makes_rows_of_frames(); }
  // Whether such frames become rows of the text decoder.
  bool makes_rows_of_frames() const { return usm || granite; }
  // Returns the rows of the text decoder that a sound of so many frames becomes.
  int64_t rows_of(int64_t frames) const {
    return usm ? usm->rows_of(frames) : granite->rows_of(frames);
  }
  bool takes_samples() const { return mel_bins == 0; }
  int64_t frames() const { return 2 * positions; }
  bool operator==(const AudioConfig&) const = default;
};

}  // namespace ferry::converters
