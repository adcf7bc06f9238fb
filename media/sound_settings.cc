#include "media/sound_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/json.h"
#include "core/text.h"

namespace ferry::media {
namespace {

using nlohmann::json;

constexpr int64_t kMostWindow = 4096, kMostMels = 1024, kMostChunk = 60, kMostFrames = 1 << 15;
// A transform takes time in proportion to the prime factors of its length.
constexpr int64_t kMostFactor = 61, kMostProjectorWindow = 1024;
constexpr double kMostPreemphasis = 1000.0;
constexpr double kMostScale = 1e6, kMostMilliseconds = 1000.0, kMostHz = 1e6;

int64_t largest_prime_factor(int64_t number) {
  int64_t largest = 1;
  for (int64_t factor = 2; number > 1; ++factor) {
    for (; number % factor == 0; number /= factor) largest = factor;
  }
  return largest;
}

// Reads the fields of one processor file.
class ExtractorFields {
 public:
  ExtractorFields(const json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  Status number(const char* name, int64_t least, int64_t most, int64_t& out) const {
    const auto found = object_.find(name);
    if (found == object_.end() || found->is_null()) return {};
    if (!found->is_number_integer() || *found < least || *found > most) {
      return bad_input(
          fmt::format("{}: '{}' is not a whole number from {} to {}", where_, name, least, most));
    }
    out = found->get<int64_t>();
    return {};
  }
  // A null is no number.
  Status number_or_null(const char* name, double most, std::optional<double>& out) const {
    const auto found = object_.find(name);
    if (found == object_.end()) return {};
    out.reset();
    if (found->is_null()) return {};
    if (!found->is_number() || !(std::fabs(found->get<double>()) <= most)) {
      return bad_input(
          fmt::format("{}: '{}' is not a number from -{} to {}", where_, name, most, most));
    }
    out = found->get<double>();
    return {};
  }
  // A null and an absent number leave `out` as it is.
  Status real(const char* name, double least, double most, double& out) const {
    const auto found = object_.find(name);
    if (found == object_.end() || found->is_null()) return {};
    if (!found->is_number() || !(*found >= least && *found <= most)) {
      return bad_input(
          fmt::format("{}: '{}' is not a number from {} to {}", where_, name, least, most));
    }
    out = found->get<double>();
    return {};
  }
  // Reads a list of `count` numbers, no zero among them unless zeros are allowed; null is none. The
  // reference saves the list in lists of one item.
  Status reals(const char* name, int64_t count, bool zeros, std::vector<double>& out) const {
    const auto stated = object_.find(name);
    if (stated == object_.end() || stated->is_null()) return {};
    const json* found = &*stated;
    while (found->is_array() && found->size() == 1 && found->front().is_array()) {
      found = &found->front();
    }
    const auto fits = [&](const json& item) {
      return item.is_number() && std::fabs(item.get<double>()) <= kMostScale &&
             (zeros || item.get<double>() != 0.0);
    };
    const bool list = found->is_array() && static_cast<int64_t>(found->size()) == count;
    if (!list || !std::ranges::all_of(*found, fits)) {
      return bad_input(fmt::format("{}: '{}' is not a list of {} numbers from -{} to {}{}", where_,
                                   name, count, kMostScale, kMostScale, zeros ? "" : ", none 0"));
    }
    for (const json& item : *found) out.push_back(item.get<double>());
    return {};
  }
  Status flag(const char* name, bool& out) const {
    const auto found = object_.find(name);
    if (found == object_.end()) return {};
    if (!found->is_boolean()) {
      return bad_input(fmt::format("{}: '{}' is not true or false", where_, name));
    }
    out = found->get<bool>();
    return {};
  }
  // Refuses every value but `only`, and null.
  Status fixed(const char* name, const json& only) const {
    const auto found = object_.find(name);
    if (found == object_.end() || found->is_null() || *found == only) return {};
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: '{}' is not {}: not supported", where_, name, only.dump()));
  }
  const std::string& where() const { return where_; }

 private:
  const json& object_;
  std::string where_;
};

Status check_transform(int64_t window, const std::string& where) {
  if (window % 2 != 0) {
    return fail(ErrorCode::kUnsupported, where + ": 'n_fft' is odd: not supported");
  }
  if (largest_prime_factor(window) <= kMostFactor) return {};
  return fail(
      ErrorCode::kUnsupported,
      fmt::format("{}: 'n_fft' has a prime factor above {}: not supported", where, kMostFactor));
}

Result<LogMelSettings> read_log_mel(const ExtractorFields& fields) {
  const std::string& where = fields.where();
  LogMelSettings s;
  FERRY_RETURN_IF_ERROR(fields.number("feature_size", 1, kMostMels, s.mel_bins));
  FERRY_RETURN_IF_ERROR(fields.number("sampling_rate", 16000, 16000, s.rate));
  FERRY_RETURN_IF_ERROR(fields.number("n_fft", 2, kMostWindow, s.window));
  FERRY_RETURN_IF_ERROR(fields.number("hop_length", 1, s.window, s.hop));
  FERRY_RETURN_IF_ERROR(fields.number("chunk_length", 1, kMostChunk, s.chunk_seconds));
  FERRY_RETURN_IF_ERROR(fields.fixed("dither", 0.0));
  FERRY_RETURN_IF_ERROR(fields.fixed("padding_value", 0.0));
  FERRY_RETURN_IF_ERROR(fields.fixed("padding_side", "right"));
  FERRY_RETURN_IF_ERROR(check_transform(s.window, where));
  if (s.chunk_frames() > kMostFrames) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: 'hop_length' makes more than {} frames of a chunk: not supported",
                            where, kMostFrames));
  }
  return s;
}

// Settings of padding change nothing in one sound.
Result<NormalizedMelSettings> read_normalized_mel(const ExtractorFields& fields) {
  NormalizedMelSettings s;
  FERRY_RETURN_IF_ERROR(fields.number("feature_size", 1, kMostMels, s.mel_bins));
  FERRY_RETURN_IF_ERROR(fields.number("sampling_rate", 16000, 16000, s.rate));
  FERRY_RETURN_IF_ERROR(fields.number("n_fft", 2, kMostWindow, s.window));
  FERRY_RETURN_IF_ERROR(fields.number("win_length", 1, s.window, s.inner_window));
  FERRY_RETURN_IF_ERROR(fields.number("hop_length", 1, kMostWindow, s.hop));
  FERRY_RETURN_IF_ERROR(fields.number_or_null("preemphasis", kMostPreemphasis, s.preemphasis));
  if (s.inner_window > s.window) {
    return bad_input(fmt::format("{}: 'win_length' is {}, more than 'n_fft' {}", fields.where(),
                                 s.inner_window, s.window));
  }
  FERRY_RETURN_IF_ERROR(check_transform(s.window, fields.where()));
  return s;
}

// Reads a length in milliseconds as samples, rounded as the reference rounds.
Status read_milliseconds(const ExtractorFields& fields, const char* name, int64_t rate,
                         int64_t least, int64_t& samples) {
  double length = 1000.0 * static_cast<double>(samples) / static_cast<double>(rate);
  FERRY_RETURN_IF_ERROR(fields.real(name, 0.0, kMostMilliseconds, length));
  samples = std::llrint(static_cast<double>(rate) * length / 1000.0);
  if (samples >= least && samples <= kMostWindow) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: '{}' is of {} samples, not of {} to {}: not supported",
                          fields.where(), name, samples, least, kMostWindow));
}

// The reference computes frame_length, hop_length and fft_length, whatever the file says of them.
Result<UsmMelSettings> read_usm_mel(const ExtractorFields& fields, UsmMelSettings s) {
  const bool overdriven = s.is_gemma3n;  // by default
  FERRY_RETURN_IF_ERROR(fields.number("feature_size", 1, kMostMels, s.mel_bins));
  FERRY_RETURN_IF_ERROR(fields.number("sampling_rate", 16000, 16000, s.rate));
  FERRY_RETURN_IF_ERROR(read_milliseconds(fields, "frame_length_ms", s.rate, 2, s.frame));
  FERRY_RETURN_IF_ERROR(read_milliseconds(fields, "hop_length_ms", s.rate, 1, s.hop));
  FERRY_RETURN_IF_ERROR(fields.real("min_frequency", 0.0, kMostHz, s.least_hz));
  FERRY_RETURN_IF_ERROR(fields.real("max_frequency", 0.0, kMostHz, s.most_hz));
  FERRY_RETURN_IF_ERROR(
      fields.real("preemphasis", -kMostPreemphasis, kMostPreemphasis, s.preemphasis));
  FERRY_RETURN_IF_ERROR(fields.flag("preemphasis_htk_flavor", s.htk_preemphasis));
  FERRY_RETURN_IF_ERROR(fields.real("input_scale_factor", -kMostScale, kMostScale, s.scale));
  FERRY_RETURN_IF_ERROR(fields.real("mel_floor", 1e-30, kMostScale, s.floor));
  FERRY_RETURN_IF_ERROR(fields.reals("per_bin_mean", s.mel_bins, /*zeros=*/true, s.means));
  FERRY_RETURN_IF_ERROR(fields.reals("per_bin_stddev", s.mel_bins, /*zeros=*/false, s.deviations));
  bool overdrive = overdriven;
  FERRY_RETURN_IF_ERROR(fields.flag("fft_overdrive", overdrive));
  FERRY_RETURN_IF_ERROR(fields.fixed("dither", 0.0));
  FERRY_RETURN_IF_ERROR(fields.fixed("padding_value", 0.0));
  FERRY_RETURN_IF_ERROR(fields.fixed("padding_side", "right"));
  s.preemphasis = std::max(s.preemphasis, 0.0);  // the reference takes less for none
  s.window = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(s.frame)));
  if (overdrive) s.window *= 2;
  // The reference would hide frames of the padding, which the others see.
  if (s.is_gemma3n && s.frame < UsmMelSettings::kBlock - 1) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: 'frame_length_ms' is of {} samples, fewer than {}: not supported",
                            fields.where(), s.frame, UsmMelSettings::kBlock - 1));
  }
  if (s.least_hz < s.most_hz) return s;
  return bad_input(fmt::format("{}: 'max_frequency' is {}, not more than 'min_frequency' {}",
                               fields.where(), s.most_hz, s.least_hz));
}

// The reference computes with n_mels and others of the file, and with their defaults whatever
// feature_size and melspec_kwargs say, under which it saves them.
Result<PairedMelSettings> read_paired_mel(const ExtractorFields& fields) {
  PairedMelSettings s;
  FERRY_RETURN_IF_ERROR(fields.number("n_mels", 1, kMostMels, s.mel_bins));
  FERRY_RETURN_IF_ERROR(fields.number("sampling_rate", 16000, 16000, s.rate));
  FERRY_RETURN_IF_ERROR(fields.number("n_fft", 2, kMostWindow, s.window));
  FERRY_RETURN_IF_ERROR(fields.number("win_length", 1, kMostWindow, s.inner_window));
  FERRY_RETURN_IF_ERROR(fields.number("hop_length", 1, kMostWindow, s.hop));
  FERRY_RETURN_IF_ERROR(
      fields.number("projector_window_size", 1, kMostProjectorWindow, s.projector_window));
  FERRY_RETURN_IF_ERROR(
      fields.number("projector_downsample_rate", 1, kMostProjectorWindow, s.projector_rate));
  if (s.inner_window > s.window) {
    return bad_input(fmt::format("{}: 'win_length' is {}, more than 'n_fft' {}", fields.where(),
                                 s.inner_window, s.window));
  }
  FERRY_RETURN_IF_ERROR(check_transform(s.window, fields.where()));
  return s;
}

Result<WaveformSettings> read_waveform(const ExtractorFields& fields) {
  WaveformSettings s;
  FERRY_RETURN_IF_ERROR(fields.fixed("feature_size", 1));
  FERRY_RETURN_IF_ERROR(fields.number("sampling_rate", 16000, 16000, s.rate));
  FERRY_RETURN_IF_ERROR(fields.flag("do_normalize", s.normalize));
  return s;
}

// Whether a processor file names the processor that pads sounds to whole windows. Its windows have
// 30 seconds and 3000 frames, whatever the feature extractor states.
bool names_voxtral(const json& object) {
  const auto name = object.is_object() ? object.find("processor_class") : object.end();
  return object.is_object() && name != object.end() && *name == "VoxtralProcessor";
}

Result<SoundSettings> with_whole_sounds(SoundSettings settings, bool whole,
                                        const std::string& where) {
  auto* mel = std::get_if<LogMelSettings>(&settings);
  if (!whole || mel == nullptr) return settings;
  constexpr int64_t kSamples = 480000, kFrames = 3000;
  if (mel->chunk_samples() != kSamples || mel->chunk_frames() != kFrames) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: makes {} frames of {} samples, VoxtralProcessor {} of {}: not "
                            "supported",
                            where, mel->chunk_frames(), mel->chunk_samples(), kFrames, kSamples));
  }
  mel->whole_sounds = true;
  return settings;
}

Result<SoundSettings> read_extractor(const json& object, const std::string& where) {
  if (!object.is_object()) return bad_input(where + ": not a JSON object");
  const ExtractorFields fields(object, where);
  constexpr const char* kType = "feature_extractor_type";
  const auto type = object.find(kType);
  if (type == object.end()) return bad_input(fmt::format("{}: '{}' is missing", where, kType));
  if (*type == "WhisperFeatureExtractor") {
    return SoundSettings(FERRY_TRY(read_log_mel(fields)));
  }
  if (*type == "Wav2Vec2FeatureExtractor") {
    return SoundSettings(FERRY_TRY(read_waveform(fields)));
  }
  if (*type == "ParakeetFeatureExtractor") {
    return SoundSettings(FERRY_TRY(read_normalized_mel(fields)));
  }
  if (*type == "Gemma4AudioFeatureExtractor") {
    return SoundSettings(FERRY_TRY(read_usm_mel(fields, UsmMelSettings())));
  }
  if (*type == "Gemma3nAudioFeatureExtractor") {
    return SoundSettings(FERRY_TRY(read_usm_mel(fields, UsmMelSettings::gemma3n())));
  }
  if (*type == "GraniteSpeechFeatureExtractor") {
    return SoundSettings(FERRY_TRY(read_paired_mel(fields)));
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: '{}' is none of WhisperFeatureExtractor, Wav2Vec2FeatureExtractor, "
                          "ParakeetFeatureExtractor, Gemma4AudioFeatureExtractor, "
                          "Gemma3nAudioFeatureExtractor and GraniteSpeechFeatureExtractor: not "
                          "supported",
                          where, kType));
}

}  // namespace

int64_t rate_of(const SoundSettings& settings) {
  return std::visit([](const auto& s) { return s.rate; }, settings);
}

Result<SoundSettings> sound_settings(std::string_view preprocessor, std::string_view processor,
                                     const std::string& directory) {
  const std::string folder = printable(directory) + "/";
  if (!processor.empty()) {
    const std::string where = folder + "processor_config.json";
    const json object = FERRY_TRY(parse_json(processor, where));
    for (const char* member : {"feature_extractor", "audio_processor"}) {
      if (!object.is_object() || !object.contains(member)) continue;
      const std::string inside = fmt::format("{}: '{}'", where, member);
      return with_whole_sounds(FERRY_TRY(read_extractor(object[member], inside)),
                               names_voxtral(object), inside);
    }
  }
  const std::string where = folder + "preprocessor_config.json";
  if (preprocessor.empty()) return fail(ErrorCode::kIo, where + ": there is no such file");
  const json object = FERRY_TRY(parse_json(preprocessor, where));
  return with_whole_sounds(FERRY_TRY(read_extractor(object, where)), names_voxtral(object), where);
}

}  // namespace ferry::media
