#include "proof/pixel_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/text.h"
#include "media/pixel_values.h"
#include "prompt/image_input.h"
#include "prompt/preprocess.h"

namespace ferry::proof {
namespace {

struct PromptFiles {
  const ReferencePrompt* prompt;
  std::vector<std::string> files;
};

Result<PromptFiles*> prompt_files(std::vector<PromptFiles>& all, const Reference& reference,
                                  const std::string& name) {
  const auto known = std::ranges::find_if(
      all, [&](const PromptFiles& files) { return files.prompt->name == name; });
  if (known != all.end()) return &*known;
  const auto prompt = std::ranges::find(reference.prompts(), name, &ReferencePrompt::name);
  if (prompt == reference.prompts().end() || !prompt->has("pixel_values")) {
    return fail_field(
        ErrorCode::kUsage, "image",
        fmt::format(": {} has no prompt {} with pixel_values", reference.path(), quoted(name)));
  }
  return &all.emplace_back(PromptFiles{&*prompt, {}});
}

Result<std::vector<PromptFiles>> assign(const Reference& reference,
                                        const std::vector<std::string>& images) {
  std::vector<PromptFiles> all;
  all.reserve(reference.prompts().size());
  for (const std::string& image : images) {
    const size_t equals = image.find('=');
    const bool named = equals != std::string::npos;
    if (!named && reference.prompts().size() != 1) {
      return fail_field(ErrorCode::kUsage, "image",
                        fmt::format(" {}: the reference has {} prompts: give PROMPT=FILE",
                                    quoted(image), reference.prompts().size()));
    }
    const std::string name = named ? image.substr(0, equals) : reference.prompts().front().name;
    PromptFiles* files = FERRY_TRY(prompt_files(all, reference, name));
    files->files.push_back(named ? image.substr(equals + 1) : image);
  }
  return all;
}

Result<PixelProof> prove(const PromptFiles& files, const Reference& reference,
                         media::Settings settings, ThreadPool& pool) {
  settings.alone = files.files.size() == 1;
  constexpr media::Backend kBackend = media::Backend::kTorchvision;
  media::Sample sample;
  for (const std::string& path : files.files) {
    const media::Image image = FERRY_TRY(media::read_picture(path, settings));
    sample.push_back(FERRY_TRY(prompt::cut_picture(image, path, settings, kBackend, pool)));
  }
  const media::PixelValues got = media::pixel_values(std::span(&sample, 1), settings, kBackend);
  const Shape& shape = reference.shape(*files.prompt, "pixel_values");
  if (got.shape != shape) {
    return bad_input(fmt::format("{}: prompt {}: pixel_values are {}, its image files give {}",
                                 reference.path(), quoted(files.prompt->name), to_string(shape),
                                 to_string(got.shape)));
  }
  const std::vector<float> want = FERRY_TRY(reference.floats(*files.prompt, "pixel_values", shape));
  ValueComparison comparison;
  comparison.add(got.values, want);
  PixelProof proof;
  proof.prompt = files.prompt->name;
  proof.images = files.files.size();
  for (const media::TiledImage& image : sample) proof.tiles += std::ssize(image.tiles);
  proof.metrics = comparison.metrics();
  proof.within = proof.metrics.max_abs <= kPixelTolerance;
  return proof;
}

}  // namespace

Result<std::vector<PixelProof>> prove_pixels(const packer::Bundle& bundle,
                                             const Reference& reference,
                                             const std::vector<std::string>& images,
                                             ThreadPool& pool) {
  std::vector<PixelProof> proofs;
  if (images.empty()) return proofs;
  const media::Settings settings = FERRY_TRY(prompt::image_settings(bundle));
  const std::vector<PromptFiles> assigned = FERRY_TRY(assign(reference, images));
  for (const PromptFiles& files : assigned) {
    proofs.push_back(FERRY_TRY(prove(files, reference, settings, pool)));
  }
  return proofs;
}

}  // namespace ferry::proof
