#include "cli/run_options.h"

#include <fmt/format.h>

#include "conversion/convert.h"
#include "conversion/gguf_proof.h"
#include "core/text.h"
#include "packer/loose_programs.h"
#include "text/answer_end.h"

namespace ferry::cli {
namespace {

bool is_any_given(const LooseOptions& o) {
  return !o.vision_encoder.empty() || !o.token_embedding.empty() || !o.text_decoder.empty() ||
         !o.tokenizer.empty() || !o.data.empty();
}

// Returns kUsage for an option that belongs to another kind of input, such as a GGUF file.
Status check_kind(const BundleChoice& choice, bool is_gguf) {
  if (!choice.config.empty() && !is_gguf) {
    return fail(ErrorCode::kUsage,
                "--config is for GGUF files; bundles and programs have their configuration");
  }
  if (choice.exact && !is_gguf) {
    return fail(ErrorCode::kUsage,
                "--exact is for GGUF files; bundles and programs state how they compute");
  }
  if (!choice.check_digests && is_gguf) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: --skip-digests is for bundles; a GGUF file has no digests",
                            printable(choice.directory)));
  }
  return {};
}

Status check_loose(const BundleChoice& choice, const LooseOptions& o) {
  if (!choice.directory.empty()) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: a bundle has its programs and its tokenizer; --vision-encoder, "
                            "--token-embedding, --text-decoder, --data and --tokenizer are for "
                            "programs without a bundle",
                            printable(choice.directory)));
  }
  if (o.text_decoder.empty()) return fail(ErrorCode::kUsage, "--text-decoder is required");
  if (!choice.check_digests) {
    return fail(ErrorCode::kUsage,
                "--skip-digests is for bundles; programs without one have no digests");
  }
  return {};
}

Result<packer::Bundle> open_programs(const BundleChoice& choice, const LooseOptions& o) {
  packer::LoosePrograms files{.text_decoder = o.text_decoder,
                              .token_embedding = o.token_embedding,
                              .vision_encoder = o.vision_encoder,
                              .data = o.data,
                              .tokenizer = o.tokenizer,
                              .eos_ids = {}};
  if (!o.tokenizer.empty()) files.eos_ids = [&] { return text::end_tokens(o.tokenizer); };
  packer::Bundle bundle = FERRY_TRY(packer::open_loose_programs(files));
  if (!choice.needs_eos || !bundle.manifest().eos_ids.empty()) return bundle;
  return fail(ErrorCode::kUsage,
              fmt::format("{}: neither the program nor --tokenizer says which tokens end an "
                          "answer: use --ignore-eos",
                          printable(o.text_decoder)));
}

}  // namespace

void add_loose_options(Verb& verb, LooseOptions& o) {
  verb.option("--text-decoder", o.text_decoder,
              "Program (.pte) to run without a bundle, of this or the official exporter")
      .option("--token-embedding", o.token_embedding,
              "Program of token embeddings, for a text decoder that takes them")
      .option("--vision-encoder", o.vision_encoder, "Program of image features, for the same")
      .option("--data", o.data,
              "Data file (.ptd) of these programs, beside those with their names; may be repeated")
      .option("--tokenizer", o.tokenizer,
              "Directory with tokenizer.json and the files beside it, for these programs");
}

Result<packer::Bundle> open_bundle(const BundleChoice& choice, const LooseOptions& options,
                                   ThreadPool& pool) {
  const bool is_gguf = conversion::is_gguf_file(choice.directory);
  FERRY_RETURN_IF_ERROR(check_kind(choice, is_gguf));
  if (!is_any_given(options)) {
    if (choice.directory.empty()) {
      return fail(ErrorCode::kUsage, "BUNDLE or --text-decoder is required");
    }
    if (is_gguf) {
      const auto matrices =
          choice.exact ? conversion::GgufMatrices::kFloats : conversion::GgufMatrices::kBlocks;
      return conversion::bundle_in_memory(choice.directory, choice.config, matrices, pool);
    }
    return choice.check_digests
               ? packer::Bundle::open_to_execute(choice.directory, pool, choice.progress)
               : packer::Bundle::open(choice.directory, /*check_digests=*/false, pool);
  }
  FERRY_RETURN_IF_ERROR(check_loose(choice, options));
  return open_programs(choice, options);
}

}  // namespace ferry::cli
