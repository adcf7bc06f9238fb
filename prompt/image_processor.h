// ImageProcessor holds the settings of a vision-language checkpoint's processor files for images in
// prompts. The rules are those of the processor classes of transformers 5.12.1.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"
#include "text/read_file.h"

namespace ferry::prompt {

enum class ImageGrammar {
  kIdefics3,   // SmolVLM: tiles with their row and column, then the whole image
  kInternVl,   // all tiles in one run
  kGemma3,     // the whole image, then its parts, with words between them
  kGemma3n,    // one run between empty lines
  kQwenVl,     // one run, as long as the image is large
  kLlava,      // one run
  kGemma4,     // one run, as long as the image has tokens
  kLfm2Vl,     // tiles with their row and column, then the whole image; each with tokens of its own
  kPaliGemma,  // one run; the first token of a text behind the last image, and a newline at its end
  kTiled,      // one run, as long as the tiles of the image have rows together
  kPixtral,    // the rows of an image, with a mark behind each
  kGraniteSpeech,  // takes sounds alone, whose runs have no marks
};

// The text that stands for a video.
enum class VideoText {
  kNone,    // videos are not supported
  kRun,     // one run of its own placeholder (Qwen2-VL)
  kSpaced,  // the same, whose places in time go by the seconds between frames (Qwen2.5-VL)
  kTimed,   // for each group of frames its time and a run between the marks of an image (Qwen3-VL)
  kNumbered,  // for each frame its number and what stands for an image (InternVL)
  kStory,     // words about the video, and for each frame its time and an image (SmolVLM)
  kClock,     // for each frame its minute and second and a run between marks (Gemma 4)
  kPooled,    // one run, with a placeholder for the end of a line behind it (LLaVA-OneVision)
};

inline constexpr int64_t kMaxTokensPerTile = 65'536;
inline constexpr size_t kMaxImageTokenBytes = 128;

struct ImageProcessor {
  ImageGrammar grammar = ImageGrammar::kIdefics3;
  int64_t tokens_per_tile = 0;  // 0 where the shape of a tile decides
  // The placeholder, of which a tile has tokens_per_tile; empty if the processor takes no images.
  std::string image;
  std::string mark;  // a template writes one for each image: the placeholder, for Gemma3 `open`
  // Before and after an image; Qwen-VL: the template writes them; Pixtral: after a row, and after
  // the last.
  std::string open, close;
  std::string stand_in;  // what stands for an image in a prompt that has no mark
  std::string global;    // Idefics3, Lfm2Vl: before the whole image
  // The text that a template writes for a video; empty if the processor has no videos.
  std::string video;
  VideoText video_text = VideoText::kNone;
  // Whether all frames of a video are one run.
  bool runs_videos() const {
    return video_text == VideoText::kRun || video_text == VideoText::kSpaced || ends_videos();
  }
  // Whether the row of an end of line is behind those of all frames.
  bool ends_videos() const { return video_text == VideoText::kPooled; }
  // The placeholder of a row of a sound, of which a template writes one for each sound; empty if
  // the tokenizer has none. Gemma3n, Gemma4: what stands before and after the rows.
  std::string audio, audio_open, audio_close;
  bool marks_sounds() const { return grammar != ImageGrammar::kGraniteSpeech; }
  int64_t tokens_per_sound = 0;  // Gemma3n: the rows of every sound; else 0
  std::string bos;               // empty if there is none
  bool adds_special = true;      // whether a prompt without a chat template gets special tokens
};

// Reads processor_config.json, preprocessor_config.json (for the class, if the former does not name
// it) and tokenizer_config.json. `directory` begins error messages. kUnsupported, by name, for
// unknown classes and fields.
Result<ImageProcessor> read_image_processor(const std::string& directory,
                                            const text::ReadFile& read);

// Returns the processor's chat template as Jinja: chat_template.jinja, otherwise the member of
// chat_template.json, otherwise that of processor_config.json. Returns an empty text if there is
// none.
Result<std::string> read_processor_template(const std::string& directory,
                                            const text::ReadFile& read);

}  // namespace ferry::prompt
