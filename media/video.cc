#include "media/video.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "core/directory.h"
#include "core/file.h"
#include "core/text.h"
#include "media/decode.h"

namespace ferry::media {
namespace {

// The beginnings of files that are films, or pictures that move.
struct Film {
  std::string_view magic;
  size_t offset;
  std::string_view name;
};
constexpr std::array kFilms = {
    Film{"ftyp", 4, "an MP4 or QuickTime film"},
    Film{"moov", 4, "a QuickTime film"},
    Film{std::string_view("\x1A\x45\xDF\xA3", 4), 0, "a Matroska or WebM film"},
    Film{"AVI ", 8, "an AVI film"},
    Film{std::string_view("\0\0\1\xBA", 4), 0, "an MPEG film"},
    Film{std::string_view("\0\0\1\xB3", 4), 0, "an MPEG film"},
    Film{"OggS", 0, "an Ogg film"},
    Film{"FLV", 0, "a Flash film"},
    Film{"GIF8", 0, "a GIF"},
    Film{"WEBP", 8, "a WebP"},
    Film{"\x89PNG", 0, "a PNG"},
};

// Says what a file is that is no folder of frames.
Result<Video> refuse_film(const std::string& path) {
  const InputFile file = FERRY_TRY(InputFile::open(path));
  std::array<std::byte, 12> head{};
  const auto size = static_cast<size_t>(std::min<uint64_t>(file.size(), head.size()));
  FERRY_RETURN_IF_ERROR(file.read_at(0, std::span(head).first(size)));
  const std::string_view text(reinterpret_cast<const char*>(head.data()), size);
  std::string_view name = "a file";
  for (const Film& film : kFilms) {
    if (text.size() >= film.offset && text.substr(film.offset).starts_with(film.magic)) {
      name = film.name;
      break;
    }
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: is {}; films are not decoded: give a folder with the frames, as "
                          "'ffmpeg -i FILE -vf fps=2 FOLDER/%05d.png' makes it, and how many a "
                          "second has",
                          printable(path), name));
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Returns the digits of a number at `at`, without zeros before it, and moves behind it.
std::string_view number_at(std::string_view text, size_t& at) {
  const size_t first = at;
  while (at < text.size() && is_digit(text[at])) ++at;
  std::string_view digits = text.substr(first, at - first);
  while (digits.size() > 1 && digits.front() == '0') digits.remove_prefix(1);
  return digits;
}

}  // namespace

bool comes_before(const std::string& first, const std::string& second) {
  size_t a = 0, b = 0;
  while (a < first.size() && b < second.size()) {
    if (is_digit(first[a]) && is_digit(second[b])) {
      const std::string_view left = number_at(first, a), right = number_at(second, b);
      if (left.size() != right.size()) return left.size() < right.size();
      if (left != right) return left < right;
      continue;
    }
    if (first[a] != second[b]) {
      return static_cast<unsigned char>(first[a]) < static_cast<unsigned char>(second[b]);
    }
    ++a, ++b;
  }
  const size_t left = first.size() - a, right = second.size() - b;
  return left != right ? left < right : first < second;
}

Result<Video> open_video(const std::string& path, std::optional<double> rate) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) return refuse_film(path);
  if (!rate) {
    return fail(ErrorCode::kUsage,
                printable(path) + ": how many frames of this folder a second has must be stated");
  }
  if (!(*rate >= 1e-3 && *rate <= 1e4)) {
    return bad_input(
        fmt::format("{}: {} frames a second, expected 0.001 to 10000", printable(path), *rate));
  }
  const Directory folder = FERRY_TRY(Directory::open(path));
  std::vector<std::string> names = FERRY_TRY(folder.names());
  std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
  if (names.empty() || std::ssize(names) > kMaxVideoFrames) {
    return bad_input(fmt::format("{}: a folder of {} frames, expected 1 to {}", printable(path),
                                 names.size(), kMaxVideoFrames));
  }
  std::ranges::sort(names, comes_before);
  Video video{path, {}, *rate};
  for (const std::string& name : names) video.frames.push_back(folder.path_of(name));
  return video;
}

int64_t VideoReader::groups() const {
  const int64_t group = settings_.group();
  return (std::ssize(taken_) + group - 1) / group;
}

int64_t VideoReader::tokens() const {
  const int64_t merge = settings_.frame.merge;
  return int64_t{grid_.rows} * grid_.columns / (merge * merge);
}

Shape VideoReader::group_shape() const {
  const Settings& s = settings_.frame;
  if (s.has_patches()) return {1, s.max_patches(), int64_t{3} * s.patch * s.patch};
  if (!s.any_shape()) return {1, 3, target_.height, target_.width};
  return {int64_t{grid_.rows} * grid_.columns, int64_t{3} * s.frames * s.patch * s.patch};
}

double VideoReader::seconds_of(int64_t frame) const {
  return static_cast<double>(taken_[static_cast<size_t>(frame)]) / video_.rate;
}

double VideoReader::group_seconds() const {
  const auto taken = static_cast<double>(taken_.size());
  const double rate = taken / static_cast<double>(video_.frames.size()) * video_.rate;
  return static_cast<double>(settings_.group()) / rate;
}

Result<Image> VideoReader::frame(int64_t place) const {
  const auto number = static_cast<size_t>(taken_[static_cast<size_t>(place)]);
  const std::string& path = video_.frames[number];
  Image image = FERRY_TRY(read_image(path));
  if (size_ == Size{} || image.size == size_) return image;
  return bad_input(fmt::format("{}: a frame of {} x {} pixels in a video of {} x {}",
                               printable(path), image.size.width, image.size.height, size_.width,
                               size_.height));
}

Result<VideoReader> VideoReader::open(Video video, const VideoSettings& settings,
                                      ThreadPool& pool) {
  VideoReader out(std::move(video), settings, pool);
  const std::string where = printable(out.video_.path);
  const auto placed = [&](const auto& result) {
    return fail(result.error().code, where + ": " + result.error().message);
  };
  auto taken = taken_frames(settings, std::ssize(out.video_.frames), out.video_.rate);
  if (!taken) return placed(taken);
  out.taken_ = std::move(*taken);
  out.size_ = FERRY_TRY(out.frame(0)).size;
  const Settings& s = settings.frame;
  out.target_ = {s.tile, s.tile};
  if (s.any_shape() || s.has_patches()) {
    const auto target = s.has_patches() ? processed_size(out.size_, s)
                                        : video_size(out.size_, std::ssize(out.taken_), settings);
    if (!target) return placed(target);
    out.target_ = *target;
    out.grid_ = {out.target_.width / s.patch, out.target_.height / s.patch};
  }
  const int64_t area = int64_t{out.target_.width} * out.target_.height;
  if (area <= kMaxVideoPixels / std::ssize(out.taken_)) return out;
  return bad_input(fmt::format("{}: {} frames of {} x {} pixels are more than {} pixels", where,
                               out.taken_.size(), out.target_.width, out.target_.height,
                               kMaxVideoPixels));
}

Result<std::vector<float>> VideoReader::group(int64_t number) const {
  const int64_t group = settings_.group(), last = std::ssize(taken_) - 1;
  constexpr Backend kBackend = Backend::kTorchvision;
  std::vector<Image> frames;
  for (int64_t i = number * group; i < (number + 1) * group && i <= last; ++i) {
    Image image = FERRY_TRY(frame(i));
    if (!settings_.frame.any_shape()) {
      const Sample sample = {FERRY_TRY(cut(image, settings_.frame, kBackend, *pool_))};
      return pixel_values(std::span(&sample, 1), settings_.frame, kBackend).values;
    }
    frames.push_back(image.size == target_
                         ? std::move(image)
                         : resize(image, target_, settings_.frame.filter, kBackend, *pool_));
  }
  return group_values(frames, settings_.frame, kBackend);
}

}  // namespace ferry::media
