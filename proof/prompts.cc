#include "proof/prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>
#include <string>
#include <string_view>

#include "core/file.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "proof/encoded_rows.h"
#include "proof/row_ports.h"
#include "runner/sampler.h"
#include "runner/token_embedder.h"

namespace ferry::proof {
namespace {

constexpr uint64_t kMaxPromptBytes = 64 << 20;

// Removes a pair of brackets around a line.
std::string_view without_brackets(std::string_view line) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t first = line.find_first_not_of(kBlank), last = line.find_last_not_of(kBlank);
  if (first == line.npos || line[first] != '[' || line[last] != ']') return line;
  return line.substr(first + 1, last - first - 1);
}

Result<std::vector<int64_t>> parse_line(std::string_view line, const std::string& where) {
  std::vector<int64_t> ids;
  line = without_brackets(line);
  constexpr std::string_view kBetween = ", \t\r";
  for (size_t at = line.find_first_not_of(kBetween); at != std::string_view::npos;
       at = line.find_first_not_of(kBetween, at)) {
    int64_t id = 0;
    const auto [end, error] = std::from_chars(line.data() + at, line.data() + line.size(), id);
    const auto next = static_cast<size_t>(end - line.data());
    const bool whole = next == line.size() || kBetween.find(line[next]) != std::string_view::npos;
    if (error != std::errc() || !whole) {
      return bad_input(fmt::format("{}: expected token ids such as 1,2,3", where));
    }
    ids.push_back(id);
    at = next;
  }
  return ids;
}

}  // namespace

Result<Prompts> read_prompts(const std::string& path) {
  const InputFile file = FERRY_TRY(InputFile::open(path));
  if (file.size() > kMaxPromptBytes) return bad_input(fmt::format("{}: too large", path));
  std::string text(file.size(), '\0');
  FERRY_RETURN_IF_ERROR(file.read_at(0, std::as_writable_bytes(std::span(text))));
  Prompts prompts;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string where = fmt::format("{}: line {}", printable(path), ++number);
    std::vector<int64_t> ids =
        FERRY_TRY(parse_line(std::string_view(text).substr(at, end - at), where));
    if (!ids.empty()) prompts.push_back(std::move(ids));
    at = end + 1;
  }
  if (prompts.empty()) return bad_input(fmt::format("{}: there is no prompt", printable(path)));
  return prompts;
}

namespace {

Result<std::vector<int64_t>> greedy_tokens(runner::Decoder& decoder, int64_t vocab_size,
                                           const RecordedPrompt& prompt, int64_t count) {
  const auto vocab = static_cast<size_t>(vocab_size);
  std::vector<int64_t> tokens;
  decoder.restart();
  FERRY_RETURN_IF_ERROR(prompt.encoder_input.give(decoder));
  FERRY_RETURN_IF_ERROR(decoder.set_image_rows(prompt.images.rows()));
  std::span<const float> row = FERRY_TRY(decoder.forward(prompt.tokens));
  FERRY_RETURN_IF_ERROR(decoder.set_image_rows({}));
  while (true) {
    if (row.size() < vocab) return bad_input("the bundle's logits are not [rows, vocabulary]");
    tokens.push_back(static_cast<int64_t>(runner::argmax(row.last(vocab))));
    if (std::ssize(tokens) >= count) return tokens;
    row = FERRY_TRY(decoder.forward({&tokens.back(), 1}));
  }
}

}  // namespace

std::vector<RecordedPrompt> probing_prompts(int64_t vocab_size, int64_t capacity) {
  constexpr int64_t kPromptTokens = 24;
  const int64_t longest = std::max<int64_t>(1, capacity - kGreedyTokens + 1);
  std::vector<RecordedPrompt> prompts;
  uint64_t state = 0x9e3779b97f4a7c15;  // any odd constant would do; fixed, so that reports repeat
  for (const int64_t length : {std::min(longest, kPromptTokens), int64_t{1}}) {
    RecordedPrompt& prompt = prompts.emplace_back();
    prompt.name = std::to_string(prompts.size() - 1);
    prompt.tokens.resize(static_cast<size_t>(length));
    for (int64_t& id : prompt.tokens) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      id = static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(vocab_size));
    }
  }
  return prompts;
}

namespace {

Shape patches_shape(const ImageGrid& grid, int64_t blocks) {
  return {blocks * grid.merge_size * grid.merge_size,
          3 * grid.patch_size * grid.patch_size * grid.temporal_patch_size};
}

// Returns the rows and columns of a list of patches that leaves some of `patches` as padding and,
// where they are enough, is not square. `rows` features are made of all patches.
ImageShape probing_shape(int64_t patches, int64_t rows) {
  const auto side = [](int64_t area) {
    return std::max<int64_t>(1, static_cast<int64_t>(std::sqrt(static_cast<double>(area))));
  };
  const int64_t square = side(patches / rows), longer = side(rows);
  return {std::max<int64_t>(1, longer - 1) * square, longer * square};
}

// Returns the size of a picture with a frame in its resolution, which is the smallest of all.
ImageShape probing_picture(const runner::PictureTiles& tiles) {
  const Extent size = *std::ranges::min_element(tiles.resolutions, {}, &Extent::area);
  return {std::max<int64_t>(1, size.rows / 2), size.columns};
}

// Gives all frames of a patch the values of the first.
void repeat_frames(const ImageGrid& grid, std::vector<float>& pixels) {
  const auto frame = static_cast<size_t>(grid.patch_size * grid.patch_size);
  const size_t channel = frame * static_cast<size_t>(grid.temporal_patch_size);
  for (size_t at = 0; at < pixels.size(); ++at) {
    pixels[at] = pixels[at / channel * channel + at % frame];
  }
}

}  // namespace

void add_probing_image(const packer::Manifest& manifest, int64_t capacity,
                       std::vector<RecordedPrompt>& prompts) {
  // An image of any shape is of a few blocks, more high than wide.
  const int64_t most = most_blocks(manifest);
  const auto picture_shape = picture_of(manifest);
  const int64_t merge = manifest.image_grid ? manifest.image_grid->merge_size : 1;
  const auto list = picture_shape ? manifest.patch_list : std::nullopt;
  const int64_t wide = picture_shape ? picture_shape->columns / merge : most >= 6 ? 2 : 1;
  const int64_t high = picture_shape ? picture_shape->rows / merge : std::min<int64_t>(most, 3);
  const int64_t given = most > 0 ? wide * high : rows_of_tile(manifest);
  int64_t rows = given;
  const Shape tile = most > 0 ? patches_shape(*manifest.image_grid, rows)
                     : list   ? Shape{1, picture_shape->patches(), list->values()}
                              : tile_shape(manifest);
  RecordedPrompt& prompt = prompts.front();
  std::vector<int64_t>& tokens = prompt.tokens;
  if (given < 1 || tile.empty()) return;
  const bool listed = most == 0 && tile.size() == 3;
  const ImageShape shape = list     ? *picture_shape
                           : listed ? probing_shape(tile[1], given)
                                    : ImageShape();
  if (listed) rows = shape.patches() / (tile[1] / given);
  const auto tiled = runner::PictureTiles::in(manifest, tile, {1, given, manifest.hidden_size});
  const ImageShape picture = tiled ? probing_picture(*tiled) : ImageShape();
  const int64_t tiles = tiled ? tiled->tiles_of(picture) : 1;
  if (tiled) rows = tiled->rows_of(picture, tiles);
  if (rows < 1 || std::ssize(tokens) + rows + kGreedyTokens > capacity) return;
  if (manifest.two_way_prompts && std::ssize(tokens) + rows > manifest.prefill_length) return;
  const int64_t placeholder = manifest.image_token_id.value_or(0);
  // The placeholder occurs nowhere else, and no other token occurs as often.
  for (int64_t& id : tokens) {
    if (id == placeholder) id = (placeholder + 1) % manifest.vocab_size;
  }
  tokens.insert(tokens.begin() + 1, static_cast<size_t>(rows), placeholder);
  prompt.images.runs = {{1, rows}};
  prompt.images.width = manifest.hidden_size;
  if (list) {
    prompt.images.list = list;
    prompt.images.picture = picture_shape;
  }
  if (most > 0) {
    prompt.images.grid = manifest.image_grid;
    prompt.images.picture = picture_shape;
    prompt.images.shapes = {{high * merge, wide * merge}};
    prompt.images.placed = runner::has_places(manifest);
    if (prompt.images.placed) prompt.images.runs = {{1, rows, high, wide}};
  }
  prompt.images.pixel_shape = tile;
  if (tiled) {
    prompt.images.tiled = tiled;
    prompt.images.shapes = {picture};
    prompt.images.tile_counts = {tiles};
    prompt.images.pixel_shape[0] = tiles;
  }
  if (manifest.two_way_prompts) prompt.images.two_way_tokens = std::ssize(tokens);
  if (listed) prompt.images.shapes = {shape};
  int64_t values = 1;
  for (const int64_t size : prompt.images.pixel_shape) values *= size;
  const int64_t pixels = listed ? shape.patches() * tile[2] : values;
  uint64_t state = 0x2545f4914f6cdd1d;  // fixed, so that reports repeat
  for (int64_t i = 0; i < values; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const auto unit = static_cast<float>(state >> 40) / static_cast<float>(1U << 24);
    prompt.images.pixels.push_back(i < pixels ? 2 * unit - 1 : 0.0F);
  }
  if (most > 0 && picture_shape) repeat_frames(*manifest.image_grid, prompt.images.pixels);
}

// Samples of noise for an encoder that takes any number: two seconds. Frames and tokens likewise.
constexpr int64_t kProbingSamples = 32000, kProbingFrames = 200, kProbingTokens = 40;

void add_probing_encoder_input(const packer::Manifest& manifest,
                               std::vector<RecordedPrompt>& prompts) {
  EncoderInput input = greatest_input(manifest);
  if (input.shape.empty()) return;
  const bool text = !input.ids.empty(), labels = gives_labels(manifest);
  if (input.shape.size() == 2) {
    input.shape[1] = std::min(input.shape[1], text ? kProbingTokens : kProbingSamples);
  }
  if (labels) input.shape[1] = std::min(input.shape[1], kProbingFrames);
  const int64_t values = input.shape.size() == 2 ? input.shape[1] : input.shape[1] * input.shape[2];
  if (text) {
    input.ids.resize(static_cast<size_t>(values));
  } else {
    input.features.resize(static_cast<size_t>(values));
  }
  uint64_t state = 0x9e6c63d0876a9a47;  // fixed, so that reports repeat
  const auto draw = [&] { return state = state * 6364136223846793005ULL + 1442695040888963407ULL; };
  for (RecordedPrompt& prompt : prompts) {
    if (labels) prompt.tokens.clear();
    for (float& value : input.features) {
      value = static_cast<float>(draw() >> 40) / static_cast<float>(1U << 24);
    }
    for (int64_t& id : input.ids) {
      id = static_cast<int64_t>((draw() >> 33) % static_cast<uint64_t>(manifest.vocab_size));
    }
    prompt.encoder_input = input;
  }
}

void add_probing_sound(const packer::Manifest& manifest, int64_t capacity,
                       std::vector<RecordedPrompt>& prompts) {
  Shape window = tile_shape(manifest, kSoundRows);
  int64_t rows = rows_of_tile(manifest, kSoundRows);
  const int64_t each = manifest.audio_row_frames.value_or(0);
  if (each > 0 && window.size() == 3) {
    window[1] = std::min(window[1], kProbingFrames);
    if (manifest.audio_rows) window[1] = std::min(window[1], rows * std::min(each, window[1]));
    const int64_t made = manifest.audio_block_rows.value_or(1);
    rows = manifest.audio_rows.value_or((window[1] + each - 1) / each * made);
  }
  const auto found = std::ranges::find_if(
      prompts, [](const RecordedPrompt& prompt) { return prompt.images.empty(); });
  if (window.empty() || rows < 1 || !manifest.audio_token_id || found == prompts.end()) return;
  std::vector<int64_t>& tokens = found->tokens;
  if (tokens.empty() || std::ssize(tokens) + rows + kGreedyTokens > capacity) return;
  const int64_t placeholder = *manifest.audio_token_id;
  for (int64_t& id : tokens) {
    if (id == placeholder) id = (placeholder + 1) % manifest.vocab_size;
  }
  tokens.insert(tokens.begin() + 1, static_cast<size_t>(rows), placeholder);
  PromptImages& sound = found->images;
  sound.encoder = &kSoundRows;
  sound.runs = {{1, rows}};
  sound.width = manifest.hidden_size;
  sound.row_frames = each;
  sound.block_rows = manifest.audio_block_rows.value_or(1);
  sound.padded_rows = manifest.audio_rows.value_or(0);
  sound.pixel_shape = window;
  sound.pixels.resize(static_cast<size_t>(window[1] * window[2]));
  uint64_t state = 0x6a09e667f3bcc909;  // fixed, so that reports repeat
  for (float& value : sound.pixels) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    value = static_cast<float>(state >> 40) / static_cast<float>(1U << 24);
  }
}

Status encode_images(const runner::RowEncoders& encoders, std::vector<RecordedPrompt>& prompts) {
  for (RecordedPrompt& prompt : prompts) {
    for (PromptImages* images : prompt.images.kinds()) {
      runner::VisionEncoder* encoder = encoders.find(*images->encoder);
      if (encoder == nullptr || images->pixels.empty()) continue;
      images->features = FERRY_TRY(encode_kind(*encoder, *images));
    }
  }
  return {};
}

Status continue_prompts(runner::Decoder& decoder, const packer::Manifest& manifest,
                        int64_t capacity, std::vector<RecordedPrompt>& prompts, int64_t least) {
  const int64_t positions = std::min(capacity, decoder.capacity());
  for (RecordedPrompt& prompt : prompts) {
    // The last token of a continuation is not run.
    const int64_t room = positions - std::ssize(prompt.tokens) + 1;
    const int64_t wanted = std::max<int64_t>(std::ssize(prompt.continuation), least);
    prompt.continuation =
        FERRY_TRY(greedy_tokens(decoder, manifest.vocab_size, prompt, std::min(wanted, room)));
  }
  return {};
}

}  // namespace ferry::proof
