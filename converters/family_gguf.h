// GgufArchitecture: what a family says about one `general.architecture` of GGUF: which model it is,
// how its tensors are called in Hugging Face checkpoints, and what GGUF writers do to their values.
// Data only; dialects/gguf/model reads and writes files by it.
// Source: llama.cpp, gguf-py/gguf/tensor_mapping.py and the Python converter's classes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "converters/config/model_config.h"
#include "core/strided.h"

namespace ferry::converters {

// An order of the rows or columns of one side (file or checkpoint), as pieces that count those of
// the other side.
using GgufOrder = std::vector<StridedPiece> (*)(const ModelConfig& config);

// How a tensor of the file becomes a tensor of a Hugging Face checkpoint, and the reverse. By
// default the two are equal.
struct GgufForm {
  enum class Shape {
    kStored,
    kChannelAxis,  // [channels, kernel] becomes [channels, 1, kernel]
    kOneRow,       // [columns] becomes [1, columns]
    kFlat,         // [a, b] becomes [a * b]
    kQkv,          // rows of q, k and v, "{p}" in the name; `order` is for q, `key_order` for k
    kExperts,      // [experts, rows, columns] becomes a tensor for each expert, "{e}" in the name
    kMatrices,     // the same of any number of matrices, which belong to no layer
    kHeads,        // [heads, values] becomes a tensor for each head, "{e}" in the name
    kLayerNumber,  // a key of the metadata with a number for each layer becomes tensors [1]
    kLayerScalar,  // the same, and tensors without an axis
  };
  enum class Models { kAll, kWithExperts, kWithoutExperts };
  enum class Values {
    kStored,
    kNorm,    // the file has 1 more, where the architecture has shifted norms
    kNegExp,  // the file has -exp(A_log)
  };
  GgufOrder order = nullptr;  // the rows in a checkpoint, counting those of the file; or none
  GgufOrder key_order = nullptr;
  GgufOrder written = nullptr;  // the rows in the file, counting those of the checkpoint
  bool of_columns = false;      // `order` and `written` are orders of columns
  // The shape in the file where the form does not determine it; `written` then counts elements.
  std::vector<int64_t> (*written_shape)(const ModelConfig& config) = nullptr;
  // The file has the values times each of these numbers, and each row times one of the others.
  // Readers compute with what the file has.
  std::vector<double> (*factors)(const ModelConfig& config) = nullptr;
  std::vector<float> (*row_factors)(const ModelConfig& config) = nullptr;
  bool with_gate = false;  // the rows of kGgufPackedGate follow before they are put in order
  bool read_only = false;  // Ferry writes no such tensor
  bool (*fits)(const ModelConfig& config) = nullptr;  // models with the tensor; all by default
  bool is_part = false;          // the tensor belongs to kGgufPackedInput, where the file has that
  Models models = Models::kAll;  // models with the tensor; others have another one in its place
  Shape shape = Shape::kStored;
  Values values = Values::kStored;
};

// Names of tensors in layer "{i}".
inline constexpr std::string_view kGgufPackedInput = "blk.{i}.attn_qkv.weight";
inline constexpr std::string_view kGgufPackedGate = "blk.{i}.attn_gate.weight";

// Suffix of a matrix that checkpoints store transposed, unlike files and adapters of them.
inline constexpr std::string_view kGgufTransposed = ".T";

struct GgufName {
  std::string_view gguf;  // "{i}" is the layer
  std::string_view hf;    // may end with kGgufTransposed
  GgufForm form = {};
};

// A flag of the config that is true where some layer has a tensor, and false elsewhere.
struct GgufFlag {
  std::string_view gguf;  // "blk.{i}.attn_q_norm.weight"
  std::string_view hf;
};

// Keys, or groups of keys, that files have in the order of their architecture (written_keys.cc of
// the dialect).
enum class GgufKey {
  kStandard,  // lengths, heads, RoPE, epsilon and experts, as most architectures begin
  kContext,
  kOriginalContext,
  kEmbedding,
  kBlocks,
  kFeedForward,
  kHeads,
  kKvHeads,
  kRmsEpsilon,
  kLayerNormEpsilon,
  kHeadLengths,
  kStatedHeadLengths,  // where the config states the size of a head, and where it must be known
  kOtherHeadLengths,   // where heads do not share the hidden size
  kFileType,
  kQuantizedFileType,  // written by llama-quantize alone
  kRopeDimension,
  kRopeBase,
  kOtherRopeBase,  // a base that readers do not assume
  kRopeScaling,    // "none" where there is none
  kUnscaledRope,   // linear by 1 where there is no scaling
  kAlphaRope,
  kYarnMultiplier,
  kQueryGrowth,
  kVocabulary,
  kWindow,
  kWindowOrNone,
  kWindowPattern,
  kOtherWindows,  // the layers with a window, where they are not those that readers assume
  kScoreSoftcap,
  kLogitSoftcap,
  kLogitScale,
  kClamp,  // limits of queries, keys and values
  kMultipliers,
  kExpertSizes,
  kExpertLength,
  kSharedCount,
  kSharedLength,  // length of the shared expert, where there is one
  kDenseBlocks,   // number of layers before the first one with experts
  kExpertGating,
  kPredictingLayers,  // 0: Ferry writes no layers for multi-token prediction
  kExpertScale,
  kExpertNorm,
  kExpertNormIfAny,
  kLatentLengths,
  kLatentSizes,
  kLatentMultiplier,
  kMambaSizes,
  kStateSizes,  // as kMambaSizes, in files of the models that are not Granite
  kInnerNorms,  // whether B, C and the input of time steps are normalised
  kExpertCounts,
  kExpertsOfToken,  // their number, where it does not stand with the number of all
  kExpertInterval,  // the first layer with experts, and how many layers further each next one is
  kExpertStep,      // the same, where the first of them is one of these layers
  kTurned,          // whether heads have RoPE; without it there is no limit of positions
  kLinearAttention,
  kShortConv,
  kParallelBlocks,
  kDeepstack,
  kNoBos,
  kKindsOfLayers,     // what differs between layers of full and of sliding attention
  kDataLayout,        // of falcon: q, k and v lie apart
  kAlibiBias,         // the largest bias of ALiBi
  kLatentHeads,       // sizes of latent attention that is not kept in latent form
  kLayerFeedForward,  // the width of the MLP or of the experts of each layer, 0 where there is none
  kBothEpsilons,
  kMamba2Sizes,   // as kStateSizes, beside attention
  kExpertGroups,  // of nemotron_h
  kOneSharedExpert,
  kLatentExperts,
  kMimoHeads,    // heads that differ between layers of full and of sliding attention
  kNotCausal,    // of encoders: tokens attend to later ones too
  kHalfWindow,   // the number of which half is the reach of a window to each side
  kProjections,  // sizes of the projections behind the pooling
  kPooling,      // how states become one vector, where the checkpoint says so
  kLabels,       // names of labels, where there is a head
  kStreams,      // of gemma3n: streams, inputs of layers, shared keys, cutoffs, windows
  kSlidingRopeBase,
  kModernEpsilons,  // of modern-bert: that of layer norms under both names
  kLabelPooling,    // which state its heads of labels read
  kLocalWindow,     // tokens that a window has on both sides together
  kWindowStep,      // every so many layers one has no window, the first being such a one
  kHiddenActivation,
  kNamedActivation,  // of bitnet, whose readers do not read it
  kSourceBlocks,     // layers of the encoder of an encoder-decoder, and of its decoder
  kRelativeBuckets,  // of biases by distance
  kDecoderStart,     // the token that answers begin with
};

// The sign by which a file belongs to an architecture, where several share its name.
enum class GgufSign {
  kNone,  // the file belongs to this architecture if it has the sign of no other
  kSigmoidExperts,
  kExperts,
  kSharedExpert,
  kWindows,
  kNoRope,
  kGrowingQueries,
  kInnerNorms,
  kTwoNorms,  // the MLP has a norm of its own beside that of attention
  kRmsNorms,
  kNoTokenTypes,
  kBiasesOfLayers,  // layers behind the first one have biases by distance of their own
  kNever,           // files are read as another architecture of the name
};

// The keys that few architectures have (readers.cc of the dialect).
enum class GgufOwnKeys {
  kNone,
  kLatentAttention,
  kMamba,
  kMamba2,
  kSelectiveScan,
  kJamba,
  kExpertsAlone,
  kShortConvs,
  kParallel,
  kGrowingQueries,
  kKindsOfLayers,
  kAfmoe,
  kErnie,
  kLlama4,
  kDbrx,
  kFalconH1,
  kNemotronH,
  kFalcon,
  kMpt,
  kMinicpm3,
  kCohereMoe,
  kEncoder,
  kBert,
  kModernBert,
  kEmbeddingGemma,
  kGemma3n,
  kMimo,
  kBitnet,
  kT5,
};

// How the files of an architecture state their tokenizers, beyond the plain case: byte-level BPE.
struct GgufTokenizerRules {
  // An id that files state whatever the tokenizer says.
  struct FixedId {
    std::string_view key = {};
    uint32_t id = 0;
    bool operator==(const FixedId&) const = default;
  };
  enum class Glm { kNone, kOld, kWithBos, kMasked };

  bool sentence_piece = false;  // takes tokenizer.model where there is one
  bool llama = false;           // tokenizers of the Llama kind, and the exceptions for two sizes
  bool no_prefix = false;       // SentencePiece without a space before the text
  bool stated_prefix = false;   // SentencePiece with such a space if add_prefix_space says so
  Glm glm = Glm::kNone;         // finds special tokens by their texts
  bool spaced = false;   // BPE whose words have U+2581 for a space, and tokens for single bytes
  bool hunyuan = false;  // ends of a text are eod_token_id and those of generation_config.json
  // An encoder of BERT's kind: WordPiece, Unigram or byte-level BPE, and the number of the types
  // that a token may have.
  bool encoder = false;
  bool pieces = false;  // a Unigram, whose pieces have the ids of the tokens
  bool framed = false;  // states that texts begin with bos and end with eos and sep
  bool no_bos = false;  // states that they do not begin with bos, unless the tokenizer does
  std::array<FixedId, 2> ids = {};  // for SentencePiece
  bool operator==(const GgufTokenizerRules&) const = default;
};

struct GgufArchitecture {
  std::string_view name;                   // "qwen35"
  GgufTokenizerRules tokenizer_keys = {};  // rules for files that Ferry writes
  std::string_view model_type = {};  // "qwen3_5_text"; by default the first type of its family
  // Other model types that writers give this architecture; a config may name them.
  std::vector<std::string_view> other_types = {};
  std::string_view wrapper = {};  // the model type around it, if that makes another architecture
  std::vector<std::span<const GgufName>> tables;
  bool shifted_norms = false;     // norms are stored as 1 + w
  bool linear_attention = false;  // has ssm keys
  bool sliding_pattern = false;   // gemma3: every sixth layer is global
  bool gemma = false;             // has Gemma's activation, softcaps and scale of queries
  // gemma: number of layers of the one model that scales queries by hidden size / heads.
  int64_t layers_scaled_by_hidden = 0;
  bool multipliers = false;     // granite: multipliers of embeddings, scores, residuals and logits
  bool partial_rotary = false;  // may rotate a part of each head
  bool interleaved_sections = false;  // the sections of multimodal RoPE alternate
  int64_t no_rope_interval = 0;       // smollm3: every so many layers one has no RoPE
  bool normed_experts = false;        // norm_topk_prob
  bool layer_norm = false;            // the epsilon is that of layer norms
  bool latent = false;                // latent attention: keys have sizes of their own
  bool logit_scale = false;           // multiplies logits
  bool grouped_experts = false;       // groups, a scale of scores, a number of shared experts
  bool sigmoid_experts = false;       // scores are sigmoids
  bool states_gating = false;         // readers assume no function of scores
  // yarn_log_multiplier over mscale_all_dim; 0: the reference has no such factor.
  double log_multiplier = 0;
  bool states_alone = false;  // has neither heads nor an MLP
  // Layers without a KV head are of this type ("mamba"); others have "full_attention".
  std::string_view without_heads = {};
  int64_t window_every = 0;  // has windows in all but every so many layers, where no key lists them
  std::vector<GgufFlag> flags = {};
  // Prefix of the layers for multi-token prediction, which are in no table.
  std::string_view predicting = "mtp.blk.";
  GgufSign sign = GgufSign::kNone;
  GgufOwnKeys own_keys = GgufOwnKeys::kNone;
  // Embedding rows beyond the tokenizer's are cut, so that a config may state more of them.
  bool cuts_vocabulary = false;

  // -- for files that Ferry writes; an architecture without keys is not written
  std::vector<GgufKey> keys = {};
  // The architecture whose tokenizer keys this one has, where they are not its own.
  std::string_view tokenizer = {};
  // Tells which models are written as this architecture, where several have one model type.
  bool (*writes)(const ModelConfig&) = nullptr;
  // Tensors that Ferry reads and other readers do not: a model that has them is not written.
  std::vector<std::string_view> unread = {};
  // Readers assume the following, whatever a file says.
  Activation activation = Activation::kSilu;
  bool turns_nothing = false;  // positions are learned vectors
  bool rope_factors = false;   // llama3 scaling is a tensor of factors
  bool own_head = false;       // no head is tied to the embedding
  bool tied_head = false;      // every head is
  bool needs_experts = false;  // there is a layer with experts
  bool rough_gelu = false;   // an approximation of GELU stands for the exact one, which a note says
  bool turns_dense = false;  // beside layers with a window, those without experts have RoPE
  // Tensors without which readers fail; "{i}" stands for every layer.
  std::vector<std::string_view> needed = {};
  bool equal_heads = false;       // heads share the hidden size
  bool no_shared_heads = false;   // there are as many key heads as heads
  bool lists_windows = false;     // kWindowPattern says which layers have windows, in any order
  bool scaled_embedding = false;  // embeddings are multiplied by the root of their length
  bool turns_windows = false;     // where some layers have windows, only those have RoPE
  bool plain_windows = false;     // layers with a window have RoPE without scaling
  int64_t qk_norm_layers = 0;     // q and k have norms from so many layers on, and not before
  int64_t window_layers = 0;      // models of so many layers have windows, and no others
  // Part of the keys of tensors that readers need though nothing reads their values. A checkpoint
  // may lack them.
  std::string_view keeps_unused = {};

  bool has_experts() const {
    const auto stacks = [](const GgufName& row) {
      return row.form.shape == GgufForm::Shape::kExperts;
    };
    return std::ranges::any_of(
        tables, [&](const auto& table) { return std::ranges::any_of(table, stacks); });
  }
  // Whether an encoder's files of llama.cpp are equal for the exact GELU and its approximation.
  bool hides_gelu() const {
    return rough_gelu && has_key(GgufKey::kNotCausal) && !has_key(GgufKey::kHiddenActivation);
  }
  bool has_key(GgufKey key) const { return std::ranges::count(keys, key) > 0; }
};

}  // namespace ferry::converters
