#include <ferry/bundle.h>

#include <utility>

#include "checkpoint/hub_cache.h"
#include "conversion/convert.h"
#include "conversion/gguf_proof.h"
#include "library/internal.h"
#include "listing/file_check.h"
#include "packer/bundle_reader.h"

namespace ferry {
inline namespace v0 {
namespace {

constexpr uint64_t kMaxTextFile = uint64_t{64} << 20;

Result<packer::Bundle> open_bundle(const OpenOptions& options, ThreadPool& pool,
                                   const OnProgress& progress) {
  if (options.path.empty()) return library::wrong("path", "must not be empty");
  const std::string path = FERRY_TRY(checkpoint::find_source(options.path));
  if (conversion::is_gguf_file(path)) {
    const auto matrices =
        options.exact ? conversion::GgufMatrices::kFloats : conversion::GgufMatrices::kBlocks;
    return conversion::bundle_in_memory(
        {.path = path, .config = options.config, .mmproj = options.mmproj}, matrices, pool,
        options.all_logits);
  }
  for (const auto& [field, text] :
       {std::pair("config", &options.config), std::pair("mmproj", &options.mmproj)}) {
    if (!text->empty()) return library::wrong(field, "must be empty: it is for GGUF files");
  }
  return packer::Bundle::open(path, options.check_digests, pool,
                              library::show(progress, "checking digests"));
}

BundleComponent component_of(const packer::ManifestComponent& from) {
  BundleComponent component{from.role, from.weight_dtype, from.quantization, {}};
  for (const packer::ManifestProgram& program : from.programs) {
    component.programs.push_back(program.file);
  }
  return component;
}

CheckResult result_of(packer::CheckReport report, std::string kind) {
  CheckResult result{report.files, report.bytes, {}, std::move(kind)};
  for (packer::CheckProblem& problem : report.problems) {
    result.problems.push_back({problem.code, std::move(problem.file), std::move(problem.message)});
  }
  return result;
}

}  // namespace

Bundle::Bundle(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Bundle::~Bundle() = default;
Bundle::Bundle(const Bundle&) = default;
Bundle& Bundle::operator=(const Bundle&) = default;

Result<Bundle> Bundle::open(const OpenOptions& options, const Engine& engine,
                            const OnProgress& progress) {
  return library::run(engine, options.path, [&](ThreadPool& pool) -> Result<Bundle> {
    packer::Bundle bundle = FERRY_TRY(open_bundle(options, pool, progress));
    const bool has_blocks = conversion::is_gguf_file(bundle.path()) && !options.exact;
    return Bundle(std::make_shared<const Impl>(Impl{std::move(bundle), has_blocks, options.exact}));
  });
}

Result<Bundle> Bundle::open(const std::string& path, const Engine& engine) {
  OpenOptions options;
  options.path = path;
  return open(options, engine);
}

Result<Bundle> Bundle::with_adapter(const std::string& name) const {
  Result<packer::Bundle> chosen = impl_->bundle.with_adapter(name);
  if (!chosen) {
    Error error = std::move(chosen).error();
    error.field = "adapter";
    return Failure(std::move(error));
  }
  return Bundle(
      std::make_shared<const Impl>(Impl{*std::move(chosen), impl_->has_blocks, impl_->exact}));
}

BundleInfo Bundle::info() const {
  const packer::Manifest& manifest = impl_->bundle.manifest();
  BundleInfo info;
  info.path = impl_->bundle.path();
  info.model_type = manifest.model_type;
  info.program_kind = manifest.program_style;
  info.tool_version = manifest.tool.version;
  info.vocab_size = manifest.vocab_size;
  info.hidden_size = manifest.hidden_size;
  info.num_layers = manifest.num_layers;
  info.context_length = manifest.context_length;
  info.prefill_length = manifest.prefill_length;
  info.bos_token = manifest.bos_id;
  info.end_tokens = manifest.eos_ids;
  for (const packer::ManifestComponent& component : manifest.components) {
    info.components.push_back(component_of(component));
  }
  for (const packer::ManifestFile& file : manifest.files) {
    info.files.push_back({file.path, file.bytes});
  }
  info.has_reference = !manifest.reference.empty();
  for (const packer::ManifestAdapter& adapter : manifest.adapters) {
    info.adapters.push_back(adapter.name);
  }
  info.adapter = impl_->bundle.adapter();
  return info;
}

std::string Bundle::manifest_json() const {
  return packer::write_manifest(impl_->bundle.manifest());
}

Result<std::string> Bundle::text_file(const std::string& name) const {
  return impl_->bundle.text(name, kMaxTextFile);
}

Result<CheckResult> check_bundle(const std::string& directory, const Engine& engine,
                                 const OnProgress& progress) {
  return library::run(engine, directory, [&](ThreadPool& pool) -> Result<CheckResult> {
    packer::CheckReport report = FERRY_TRY(
        packer::check_bundle(directory, pool, library::show(progress, "checking digests")));
    return result_of(std::move(report), "bundle");
  });
}

Result<CheckResult> check(const std::string& path, const Engine& engine,
                          const OnProgress& progress) {
  return library::run(engine, path, [&](ThreadPool& pool) -> Result<CheckResult> {
    const std::string found = FERRY_TRY(checkpoint::find_source(path));
    listing::FileCheck check =
        FERRY_TRY(listing::check_path(found, pool, library::show(progress, "checking")));
    CheckResult result = result_of(std::move(check.report), std::move(check.kind));
    result.tensors = check.tensors;
    return result;
  });
}

}  // namespace v0
}  // namespace ferry
