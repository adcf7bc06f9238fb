// Checks the sizes that the manifest states for the model against its programs. The decoder, the
// sampler and verify() use these sizes as indices.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/program_interface.h"
#include "core/text.h"
#include "packer/bundle_examination.h"

namespace ferry::packer {
namespace {

// Reports every dimension that differs from the model's.
class ModelCheck {
 public:
  ModelCheck(const Manifest& model, ProblemList& problems) : model_(model), problems_(problems) {}

  void sizes() {
    for (const int64_t size : {model_.vocab_size, model_.hidden_size, model_.context_length,
                               model_.prefill_length, model_.num_layers}) {
      if (size < 1) add(kManifestName, fmt::format("a size of the model is {}", size));
    }
    const bool whole = model_.prefill_length == model_.context_length;
    if (model_.program_style == kEncoderStyle && !whole) {
      add(kManifestName, fmt::format("prefill_length {} of an encoder is not context_length {}",
                                     model_.prefill_length, model_.context_length));
    }
    if (model_.prefill_length > model_.context_length) {
      add(kManifestName, fmt::format("prefill_length {} is more than context_length {}",
                                     model_.prefill_length, model_.context_length));
    }
    if (model_.attention_sink) check_sink(*model_.attention_sink);
    const std::optional<int64_t>& limit = model_.rope_switch;
    if (limit && (*limit < 1 || *limit >= model_.context_length)) {
      add(kManifestName, fmt::format("rope_switch {} is not inside of the context of {}", *limit,
                                     model_.context_length));
    }
  }

  // Returns the most tokens in one call of a method: prefill_length for `forward`; for other
  // methods the number that the manifest states, but at most prefill_length unless the tokens are
  // of several texts.
  int64_t call_length(const ManifestComponent& decoder, const std::string& method) {
    if (method == kForwardMethod) return model_.prefill_length;
    for (const ManifestProgram& program : decoder.programs) {
      const ManifestMethod* stated = program.find(method);
      if (stated == nullptr) continue;
      const std::optional<int64_t> length = packer::call_length(*stated);
      if (!length) continue;
      const int64_t tokens = *length;
      const bool several = method == kForwardTextsMethod;
      if (tokens >= 1 && (several || tokens <= model_.prefill_length)) return tokens;
      add(program.file, fmt::format("method {} takes {} tokens, the prefill_length is {}",
                                    quoted(method), tokens, model_.prefill_length));
      return tokens;
    }
    return model_.prefill_length;
  }

  // `texts` is the most texts of one call of an encoder.
  void port(const std::string& file, const ManifestPort& port, int64_t tokens, int64_t texts) {
    if (port.name == kTextIdsPort || port.name == kPositionIdsPort ||
        port.name == kTokenTypesPort) {
      return expect(file, "input", port, {1, tokens}, "tokens of a call");
    }
    if (port.name == kLastTokensPort) {
      return expect(file, "input", port, {1, texts}, "texts of a call");
    }
    if (port.name == kTokensPort || port.name == kLayerTokensPort) {
      return expect(file, "input", port, {1, tokens}, "prefill_length");
    }
    if (port.name == kEmbeddingsPort) {
      return expect(file, "value", port, {1, tokens, embedding_width()},
                    "prefill_length and width of the decoder's embeddings");
    }
    if (port.name == kInputPosPort) {
      return is_static() ? expect(file, "input", port, {1, tokens}, "tokens of a call")
                         : expect(file, "input", port, {1}, "one position");
    }
    if (port.name == kRopePositionsPort) {
      return expect(file, "input", port, {3, tokens}, "prefill_length");
    }
    if (port.name == kDeepstackPort) {
      const int64_t layers = port.shape.empty() ? 1 : std::max<int64_t>(1, port.shape[0]);
      return expect(file, "input", port, {layers, tokens, model_.hidden_size},
                    "prefill_length and hidden_size");
    }
    const bool is_mask = port.name == kAttentionMaskPort || port.name == kWindowMaskPort;
    if (is_static() && is_mask) {
      return expect(file, "input", port, {1, 1, tokens, model_.context_length}, "context_length");
    }
    if (is_layer_port(port.name, kKCachePort)) return cached(file, port, 3, tokens);
    if (is_layer_port(port.name, kVCachePort)) return cached(file, port, 2, tokens);
    if (port.name == kSentenceEmbeddingPort) {
      const int64_t width = port.shape.size() == 2 ? std::max<int64_t>(1, port.shape[1]) : 1;
      return expect(file, "output", port, {texts, width}, "vector of each text");
    }
    if (port.name == kClassLogitsPort) {
      return expect(file, "output", port, {texts, labels()}, "labels of each text");
    }
    if (port.name == kTokenLogitsPort) {
      return expect(file, "output", port, {1, tokens, labels()}, "labels of each token");
    }
    if (port.name == kLastHiddenStatePort) {  // of some encoders it is not as wide as the layers
      const int64_t width = port.shape.size() == 3 ? std::max<int64_t>(1, port.shape[2]) : 1;
      return expect(file, "value", port, {1, tokens, width}, "prefill_length");
    }
    if (port.name == kHiddenStatesPort) {
      return expect(file, "value", port, {1, tokens, model_.hidden_size},
                    "prefill_length and hidden_size");
    }
    if (port.name != kLogitsPort) return;
    expect(file, "output", port,
           model_.all_logits ? Shape{1, tokens, model_.vocab_size} : Shape{1, model_.vocab_size},
           "vocab_size, prefill_length and all_logits");
  }

  // Checks that the components of a vision-language model fit together.
  void components() {
    const ManifestComponent* embedding = model_.find(kTokenEmbeddingRole);
    const ManifestComponent* vision = model_.find(kVisionEncoderRole);
    if (vision != nullptr && embedding == nullptr) {
      add(kManifestName, fmt::format("has a component {} but none {}", quoted(kVisionEncoderRole),
                                     quoted(kTokenEmbeddingRole)));
    }
    if (const auto& id = model_.image_token_id; id && (*id < 0 || *id >= model_.vocab_size)) {
      add(kManifestName, fmt::format("image_token_id {} is outside of the vocabulary of {}", *id,
                                     model_.vocab_size));
    }
    if (const auto& id = model_.audio_token_id; id && (*id < 0 || *id >= model_.vocab_size)) {
      add(kManifestName, fmt::format("audio_token_id {} is outside of the vocabulary of {}", *id,
                                     model_.vocab_size));
    }
    if (const auto& id = model_.video_token_id; id && (*id < 0 || *id >= model_.vocab_size)) {
      add(kManifestName, fmt::format("video_token_id {} is outside of the vocabulary of {}", *id,
                                     model_.vocab_size));
    }
    if (const auto& rate = model_.tokens_per_second; rate && (*rate < 0 || *rate > 1'000'000)) {
      add(kManifestName, fmt::format("tokens_per_second is {}, expected 0 to 1000000", *rate));
    }
    encoders();
    sound_rows();
    check_pictures(model_, problems_);
    if (vision == nullptr) return;
    for (const ManifestProgram& program : vision->programs) {
      for (const ManifestMethod& method : program.methods) {
        for (const ManifestPort& port : method.outputs) features(program.file, port);
      }
    }
  }

  void cache(const std::string& file, const ManifestBuffer& buffer) {
    const std::string_view name = buffer.name;
    if (!name.ends_with(".k_cache") && !name.ends_with(".v_cache")) return;
    if (buffer.shape.size() == 4 && buffer.shape[1] == model_.context_length) return;
    add(file, fmt::format("buffer {} is {}, the context_length of the manifest is {}", quoted(name),
                          to_string(buffer.shape), model_.context_length));
  }

  // Checks that the probe has the width of the residual stream, from which all probes are taken.
  void probe(const std::string& file, const ManifestProbe& probe, const pte::Method& method) {
    const auto* tensor = std::get_if<pte::Tensor>(&method.values[static_cast<size_t>(probe.value)]);
    const bool stream =
        probe.name.starts_with("hidden_states.") || probe.name == "last_layer_prenorm";
    if (!stream || tensor == nullptr) return;
    if (!tensor->sizes.empty() && tensor->sizes.back() == model_.hidden_size) return;
    const Shape shape(tensor->sizes.begin(), tensor->sizes.end());
    add(file, fmt::format("probe {} is {}, the hidden_size of the manifest is {}",
                          quoted(probe.name), to_string(shape), model_.hidden_size));
  }

  // Checks the constant methods that official runners read, if the program has them.
  void metadata(const std::string& file, const pte::Program& program) {
    const std::pair<std::string_view, int64_t> expected[] = {
        {"get_vocab_size", model_.vocab_size},
        {"get_max_seq_len", is_static() ? model_.context_length : model_.prefill_length},
        {"get_max_context_len", model_.positions()},
        {"get_n_layers", model_.num_layers}};
    for (const auto& [name, value] : expected) {
      const std::optional<int64_t> stated = constant_result(program, name);
      if (!stated || *stated == value) continue;
      add(file,
          fmt::format("its method {} gives {}, the manifest states {}", name, *stated, value));
    }
  }

 private:
  void check_sink(const AttentionSink& sink) {
    const auto fits = [](int64_t count) { return count >= 1 && count <= kMostSinkTokens; };
    if (!fits(sink.sink) || !fits(sink.window) || sink.slots() != model_.context_length) {
      add(kManifestName,
          fmt::format("attention_sink of {} and {} does not make the context_length {}", sink.sink,
                      sink.window, model_.context_length));
    } else if (model_.prefill_length > sink.window) {
      add(kManifestName,
          fmt::format("prefill_length {} is more than the window of attention_sink, {}",
                      model_.prefill_length, sink.window));
    }
    if (model_.program_style != kStatefulStyle || model_.rope_switch) {
      add(kManifestName, "states attention_sink, which its programs cannot have");
    }
  }
  // Since this version rows of embeddings may state their places, and pictures have one shape.
  bool is_placed() const { return model_.version >= kPlacedRowsManifestVersion; }
  // Returns the width of embeddings, which the text decoder decides.
  int64_t embedding_width() const {
    const ManifestComponent* decoder = is_placed() ? model_.find(kTextDecoderRole) : nullptr;
    if (decoder == nullptr) return model_.hidden_size;
    for (const ManifestProgram& program : decoder->programs) {
      const ManifestMethod* method = program.find(kForwardMethod);
      if (method == nullptr) continue;
      const auto port = std::ranges::find(method->inputs, kEmbeddingsPort, &ManifestPort::name);
      if (port == method->inputs.end() || port->shape.size() != 3) continue;
      return std::max(model_.hidden_size, port->shape[2]);
    }
    return model_.hidden_size;
  }
  int64_t labels() const { return model_.classifier ? std::ssize(model_.classifier->labels) : 0; }
  bool is_static() const { return model_.program_style == kStaticStyle; }

  // A cache of a static program holds the positions that the call does not bring. `axis` counts
  // positions.
  void cached(const std::string& file, const ManifestPort& port, size_t axis, int64_t tokens) {
    if (port.shape.size() == 4 && port.shape[axis] == model_.context_length - tokens) return;
    add(file, fmt::format("input {} is {}, a call of {} tokens with the manifest's context_length "
                          "{} leaves {} positions",
                          quoted(port.name), to_string(port.shape), tokens, model_.context_length,
                          model_.context_length - tokens));
  }

  using Ports = std::map<std::string, std::pair<std::string, Shape>>;  // file and shape, by name

  // Returns the keys and values of cross-attention among the inputs or outputs of a component.
  static Ports cross_ports(const ManifestComponent* component,
                           std::vector<ManifestPort> ManifestMethod::*side) {
    Ports found;
    if (component == nullptr) return found;
    for (const ManifestProgram& program : component->programs) {
      for (const ManifestMethod& method : program.methods) {
        for (const ManifestPort& port : method.*side) {
          if (!is_layer_port(port.name, kCrossKPort) && !is_layer_port(port.name, kCrossVPort)) {
            continue;
          }
          found[port.name] = {program.file, port.shape};
        }
      }
    }
    return found;
  }

  // Checks that an encoder gives the keys and values that the text decoder takes.
  void encoders() {
    const ManifestComponent* audio = model_.find(kAudioEncoderRole);
    const ManifestComponent* source = model_.find(kSourceEncoderRole);
    if (audio != nullptr && source != nullptr) {
      add(kManifestName, fmt::format("has both {} and {}", kAudioEncoderRole, kSourceEncoderRole));
    }
    const bool gives_rows = row_encoder(model_, kAudioEncoderRole) != nullptr;
    const ManifestComponent* encoder = source != nullptr ? source : gives_rows ? nullptr : audio;
    const Ports given = cross_ports(encoder, &ManifestMethod::outputs);
    const Ports taken = cross_ports(model_.find(kTextDecoderRole), &ManifestMethod::inputs);
    for (const auto& [name, port] : taken) {
      const auto found = given.find(name);
      if (found != given.end() && found->second.second == port.second) continue;
      add(port.first, fmt::format("input {} is {}, which no encoder gives", quoted(name),
                                  to_string(port.second)));
    }
    if (source != nullptr) source_start();
    if (encoder == nullptr) return;
    const bool labels = model_.main() == encoder;
    if (taken.empty() && !labels) {
      add(kManifestName, fmt::format("has a component {}, but its text decoder takes no {}0",
                                     quoted(encoder->role), kCrossKPort));
    }
    for (const ManifestProgram& program : encoder->programs) {
      for (const ManifestMethod& method : program.methods) {
        for (const ManifestPort& port : method.inputs) encoder_input(program.file, port);
        for (const ManifestPort& port : method.outputs) {
          if (!labels || port.name != kTokenLogitsPort) continue;
          expect(program.file, "output", port, {1, model_.context_length, model_.vocab_size},
                 "context_length and vocab_size");
        }
      }
    }
  }

  // Checks an audio encoder whose output becomes rows of the text decoder.
  void sound_rows() {
    const RowEncoder* rows = row_encoder(model_, kAudioEncoderRole);
    if (rows == nullptr && model_.audio_row_frames) {
      add(kManifestName, "states audio_row_frames without an audio encoder that makes rows");
    }
    if (!model_.audio_row_frames && model_.audio_rows) {
      add(kManifestName, "states audio_rows without audio_row_frames");
    }
    if (const auto& frames = model_.audio_causal_frames;
        frames &&
        (!model_.audio_rows || *frames < 1 || model_.audio_row_frames.value_or(1) % *frames != 0)) {
      add(kManifestName, "states audio_causal_frames that do not divide those of a padded row");
    }
    if (model_.audio_block_rows && (!model_.audio_row_frames || model_.audio_rows)) {
      add(kManifestName, "states audio_block_rows without audio_row_frames, or beside audio_rows");
    }
    if (rows == nullptr) return;
    if (!model_.audio_token_id)
      add(kManifestName, "states no audio_token_id for its rows of sound");
    for (const ManifestProgram& program : model_.find(rows->role)->programs) {
      for (const ManifestMethod& method : program.methods) {
        for (const ManifestPort& port : method.inputs) encoder_input(program.file, port);
        for (const ManifestPort& port : method.outputs) features(program.file, port);
      }
    }
    row_frames(*model_.find(rows->role));
  }

  // Checks that as many frames as the manifest states become a row.
  void row_frames(const ManifestComponent& encoder) {
    if (!model_.audio_row_frames) return;
    const int64_t each = *model_.audio_row_frames;
    using List = std::vector<ManifestPort> ManifestMethod::*;
    const auto find_port = [&](List ports, std::string_view name) -> const ManifestPort* {
      for (const ManifestProgram& program : encoder.programs) {
        for (const ManifestMethod& method : program.methods) {
          const auto found = std::ranges::find(method.*ports, name, &ManifestPort::name);
          if (found != (method.*ports).end() && found->shape.size() == 3) return &*found;
        }
      }
      return nullptr;
    };
    const ManifestPort* frames = find_port(&ManifestMethod::inputs, kInputFeaturesPort);
    const ManifestPort* rows = find_port(&ManifestMethod::outputs, kAudioFeaturesPort);
    if (frames == nullptr || rows == nullptr) return;
    if (model_.audio_rows) {
      if (each >= 1 && rows->shape[1] == *model_.audio_rows) return;
      add(kManifestName,
          fmt::format("audio_rows is {} and audio_row_frames {}, but a sound becomes {} rows",
                      *model_.audio_rows, each, rows->shape[1]));
      return;
    }
    const int64_t made = model_.audio_block_rows.value_or(1);
    const auto blocks = [&] { return frames->shape[1] / each + (frames->shape[1] % each > 0); };
    if (each >= 1 && made >= 1 && rows->shape[1] % made == 0 && rows->shape[1] / made == blocks()) {
      return;
    }
    add(kManifestName, fmt::format("audio_row_frames is {}, but {} frames become {} rows", each,
                                   frames->shape[1], rows->shape[1]));
  }

  void source_start() {
    const std::optional<int64_t>& start = model_.decoder_start_id;
    if (!start || *start < model_.vocab_size) return;
    add(kManifestName, fmt::format("decoder_start_id is {}, the vocabulary has {} tokens", *start,
                                   model_.vocab_size));
  }

  void encoder_input(const std::string& file, const ManifestPort& port) {
    const bool frames = port.name == kInputFeaturesPort;
    const bool source = port.name == kSourceIdsPort;
    if (!frames && !source && port.name != kInputValuesPort) return;
    const size_t rank = frames ? 3 : 2;
    if (port.shape.size() == rank && port.shape[0] == 1 && std::ranges::min(port.shape) >= 1) {
      return;
    }
    add(file, fmt::format("input {} is {}, not {}", quoted(port.name), to_string(port.shape),
                          frames   ? "[1, mels, frames]"
                          : source ? "[1, tokens]"
                                   : "[1, samples]"));
  }

  void features(const std::string& file, const ManifestPort& port) {
    if (port.name != kImageFeaturesPort && port.name != kAudioFeaturesPort) return;
    const int64_t rows = port.shape.size() == 3 ? std::max<int64_t>(1, port.shape[1]) : 1;
    expect(file, "output", port, {1, rows, embedding_width()}, "width of the decoder's embeddings");
  }

  void add(std::string_view file, const std::string& what) {
    problems_.add(std::string(file), what);
  }

  void expect(const std::string& file, std::string_view role, const ManifestPort& port,
              const Shape& shape, std::string_view by) {
    if (port.shape == shape) return;
    add(file, fmt::format("{} {} is {}, not {} by the manifest's {}", role, quoted(port.name),
                          to_string(port.shape), to_string(shape), by));
  }

  static std::optional<int64_t> constant_result(const pte::Program& program,
                                                std::string_view name) {
    const pte::Method* method = program.find(name);
    if (method == nullptr || method->outputs.size() != 1) return std::nullopt;
    const auto index = static_cast<size_t>(method->outputs[0]);
    if (method->outputs[0] < 0 || index >= method->values.size()) return std::nullopt;
    const auto* value = std::get_if<int64_t>(&method->values[index]);
    return value == nullptr ? std::nullopt : std::optional(*value);
  }

  const Manifest& model_;
  ProblemList& problems_;
};

}  // namespace

void check_model(const Manifest& manifest, ProblemList& problems) {
  ModelCheck check(manifest, problems);
  check.sizes();
  check.components();
  for (const std::string_view role : {kTextDecoderRole, kTextEncoderRole, kTokenEmbeddingRole}) {
    const ManifestComponent* component = manifest.find(role);
    // The missing program was reported before.
    if (component == nullptr || component->programs.empty()) continue;
    for (const ManifestMethod& first : component->programs.front().methods) {
      const int64_t tokens = check.call_length(*component, first.name);
      for (const ManifestProgram& program : component->programs) {
        const ManifestMethod* method = program.find(first.name);
        if (method == nullptr) continue;  // the missing method was reported before
        const int64_t texts = first.name == kForwardTextsMethod ? tokens : 1;
        for (const ManifestPort& port : method->inputs)
          check.port(program.file, port, tokens, texts);
        for (const ManifestPort& port : method->outputs) {
          check.port(program.file, port, tokens, texts);
        }
        for (const ManifestBuffer& buffer : method->buffers) check.cache(program.file, buffer);
      }
    }
  }
}

void check_model_of_program(const Manifest& manifest, const ManifestProgram& entry,
                            const pte::Program& program, ProblemList& problems) {
  ModelCheck check(manifest, problems);
  check.metadata(entry.file, program);
  for (const ManifestMethod& stated : entry.methods) {
    const pte::Method* method = program.find(stated.name_in_program());
    if (method == nullptr) continue;  // the missing method was reported before
    for (const ManifestProbe& probe : stated.probes) {
      const bool inside =
          probe.value >= 0 && static_cast<size_t>(probe.value) < method->values.size();
      if (inside) check.probe(entry.file, probe, *method);
    }
  }
}

}  // namespace ferry::packer
