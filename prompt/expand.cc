#include "prompt/expand.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"

namespace ferry::prompt {
namespace {

std::string repeated(std::string_view text, int64_t times) {
  std::string out;
  out.reserve(text.size() * static_cast<size_t>(times));
  for (int64_t i = 0; i < times; ++i) out += text;
  return out;
}

bool is_split(const ImageLayout& image) { return image.rows * image.columns > 1; }

std::string place_mark(int64_t row, int64_t column) {
  return fmt::format("<row_{}_col_{}>", row + 1, column + 1);
}
std::string lfm2_mark(int64_t row, int64_t column) {
  return fmt::format("<|img_row_{}_col_{}|>", row + 1, column + 1);
}

// A tile is followed by no mark. Rows end with a newline, and the grid with another newline.
std::string idefics3_grid(const ImageProcessor& p, const ImageLayout& image) {
  const std::string tile = repeated(p.image, p.tokens_per_tile);
  std::string out;
  for (int64_t row = 0; row < image.rows; ++row) {
    for (int64_t column = 0; column < image.columns; ++column) {
      out += p.open + place_mark(row, column) + tile;
    }
    out += "\n";
  }
  return out + "\n";
}

std::string gemma3_text(const ImageProcessor& p, const ImageLayout& image) {
  const std::string tile =
      "\n\n" + p.open + repeated(p.image, p.tokens_per_tile) + p.close + "\n\n";
  if (image.tiles == 1) return tile;
  std::string out = "Here is the original image " + tile +
                    " and here are some crops to help you see better " + tile;
  for (int64_t part = 2; part < image.tiles; ++part) out += " " + tile;
  return out;
}

// Every tile of a grid has its place before it; the whole image behind them has a mark of its own.
std::string lfm2_text(const ImageProcessor& p, const ImageLayout& image) {
  std::string out = p.open;
  for (int64_t tile = 0; tile < image.tiles; ++tile) {
    const bool in_grid = is_split(image) && tile < image.rows * image.columns;
    if (in_grid) out += lfm2_mark(tile / image.columns, tile % image.columns);
    if (is_split(image) && !in_grid) out += p.global;
    out += repeated(p.image, image.tokens_of(p, tile));
  }
  return out + p.close;
}

// A row ends with a mark, the last one with another.
std::string pixtral_text(const ImageProcessor& p, const ImageLayout& image) {
  std::string out;
  for (int64_t row = 0; row < image.tiles; ++row) {
    out += repeated(p.image, image.tokens_of(p, row));
    out += row + 1 < image.tiles ? p.open : p.close;
  }
  return out;
}

std::string many(size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace

size_t count_parts(std::string_view text, std::string_view part) {
  if (part.empty()) return 0;
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

std::string image_text(const ImageProcessor& p, const ImageLayout& image) {
  if (p.grammar == ImageGrammar::kGemma3) return gemma3_text(p, image);
  if (p.grammar == ImageGrammar::kGemma3n) {
    return "\n\n" + p.open + repeated(p.image, p.tokens_per_tile) + p.close + "\n\n";
  }
  if (p.grammar == ImageGrammar::kTiled) return repeated(p.image, image.tokens_of(p, 0));
  if (p.grammar == ImageGrammar::kQwenVl) return repeated(p.image, image.tokens_of(p, 0));
  if (p.grammar == ImageGrammar::kLfm2Vl) return lfm2_text(p, image);
  if (p.grammar == ImageGrammar::kPixtral) return pixtral_text(p, image);
  if (p.grammar == ImageGrammar::kGemma4) {
    return p.open + repeated(p.image, image.tokens_of(p, 0)) + p.close;
  }
  if (p.grammar == ImageGrammar::kInternVl || p.grammar == ImageGrammar::kLlava ||
      p.grammar == ImageGrammar::kPaliGemma) {
    return p.open + repeated(p.image, p.tokens_per_tile * image.tiles) + p.close;
  }
  const std::string grid = is_split(image) ? idefics3_grid(p, image) : std::string();
  return grid + p.open + p.global + repeated(p.image, p.tokens_per_tile) + p.close;
}

std::vector<std::string> image_marks(const ImageProcessor& p, const ImageLayout& image) {
  if (p.open.empty() || p.grammar == ImageGrammar::kQwenVl) return {};
  std::vector<std::string> marks = {p.open, p.close};
  const bool lfm2 = p.grammar == ImageGrammar::kLfm2Vl;
  if (!lfm2 && p.grammar != ImageGrammar::kIdefics3) return marks;
  if (!lfm2 || image.tiles > image.rows * image.columns) marks.push_back(p.global);
  if (!is_split(image)) return marks;
  for (int64_t row = 0; row < image.rows; ++row) {
    for (int64_t column = 0; column < image.columns; ++column) {
      marks.push_back(lfm2 ? lfm2_mark(row, column) : place_mark(row, column));
    }
  }
  return marks;
}

Status check_layouts(const ImageProcessor& p, std::span<const ImageLayout> images,
                     const std::string& where) {
  const bool may_lack_whole = p.grammar == ImageGrammar::kLfm2Vl;
  const bool by_rows = p.grammar == ImageGrammar::kPixtral;
  int64_t tokens = 0;
  for (const ImageLayout& image : images) {
    const auto& [rows, columns, given, stated] = image;
    const auto in_range = [](int64_t n, int64_t least) {
      return n >= least && n <= kMaxImageTokens;
    };
    const bool sized =
        (p.tokens_per_tile > 0 || !stated.empty()) &&
        std::ranges::all_of(stated, [&](int64_t tokens_of) { return in_range(tokens_of, 1); });
    const bool valid = in_range(rows, 0) && in_range(columns, 0) && in_range(given, 1) && sized;
    const int64_t grid = valid ? rows * columns : 0;
    const bool lacks_whole = (may_lack_whole && grid > 1 && given == grid) || by_rows;
    const bool counted = stated.empty() || std::ssize(stated) == given;
    if (!valid || !counted || (!lacks_whole && given != (grid > 1 ? grid + 1 : 1))) {
      return fail(ErrorCode::kInternal,
                  fmt::format("{}: {} tiles of a grid of {} rows and {} columns", where, given,
                              rows, columns));
    }
    for (int64_t tile = 0; tile < given && tokens <= kMaxImageTokens; ++tile) {
      tokens += image.tokens_of(p, tile);
    }
    if (tokens <= kMaxImageTokens) continue;
    return bad_input(
        fmt::format("{}: tiles of more than {} tokens together", where, kMaxImageTokens));
  }
  return {};
}

Result<std::string> expand(const ImageProcessor& p, std::string_view prompt,
                           std::span<const ImageLayout> images, const std::string& where) {
  const size_t placeholders = count_parts(prompt, p.mark);
  if (placeholders != images.size()) {
    return bad_input(fmt::format("{}: {} {} in the prompt for {}", where,
                                 many(placeholders, "placeholder"), quoted(p.mark),
                                 many(images.size(), "image")));
  }
  std::string out;
  for (const ImageLayout& image : images) {
    const size_t at = prompt.find(p.mark);
    out += prompt.substr(0, at);
    out += image_text(p, image);
    prompt.remove_prefix(at + p.mark.size());
  }
  return out += prompt;
}

Result<std::string> expand_sounds(const ImageProcessor& p, std::string_view prompt,
                                  std::span<const int64_t> sounds, const std::string& where) {
  const bool lacks_marks = p.marks_sounds() && (p.audio_open.empty() || p.audio_close.empty());
  if (p.audio.empty() || lacks_marks) {
    if (sounds.empty()) return std::string(prompt);
    return bad_input(where +
                     ": the tokenizer states no audio_token, boa_token or eoa_token, which "
                     "a prompt with a sound needs");
  }
  const size_t placeholders = count_parts(prompt, p.audio);
  if (placeholders != sounds.size()) {
    return bad_input(fmt::format("{}: {} {} in the prompt for {}", where,
                                 many(placeholders, "placeholder"), quoted(p.audio),
                                 many(sounds.size(), "sound")));
  }
  const std::string_view around = p.grammar == ImageGrammar::kGemma3n ? "\n\n" : "";
  int64_t tokens = 0;
  std::string out;
  for (const int64_t rows : sounds) {
    if (p.tokens_per_sound > 0 && rows != p.tokens_per_sound) {
      return bad_input(
          fmt::format("{}: the processor has {} tokens for a sound, the audio encoder {}", where,
                      p.tokens_per_sound, rows));
    }
    tokens += rows;
    if (rows < 1 || tokens > kMaxImageTokens) {
      return bad_input(fmt::format("{}: sounds of more than {} tokens together, or of none", where,
                                   kMaxImageTokens));
    }
    const size_t at = prompt.find(p.audio);
    out += prompt.substr(0, at);
    out += around;
    out += p.audio_open + repeated(p.audio, rows) + p.audio_close;
    out += around;
    prompt.remove_prefix(at + p.audio.size());
  }
  return out += prompt;
}

}  // namespace ferry::prompt
