#include "cli/verify_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "core/json_writer.h"
#include "core/tensor_source.h"
#include "core/text.h"
#include "formats/checkpoint.h"
#include "proof/encoder_proof.h"
#include "runner/text_encoder.h"

namespace ferry::cli {
namespace {

Result<std::string> reference_of(const packer::Bundle& bundle,
                                 const pipeline::VerifyOptions& options) {
  const bool others = !options.checkpoint.empty() || !options.against.empty() ||
                      !options.images.empty() || options.mode.has_value();
  if (others) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: an encoder is compared with a reference: --checkpoint, --against, "
                            "--image and --mode are not for it",
                            printable(bundle.path())));
  }
  if (!options.reference.empty()) return options.reference;
  const std::string& embedded = bundle.manifest().reference;
  if (!embedded.empty()) return bundle.path() + "/" + embedded;
  return fail(ErrorCode::kUsage,
              fmt::format("{}: the bundle has no embedded reference; give --reference FILE",
                          printable(bundle.path())));
}

std::string encoder_json(const proof::EncoderProof& proof, const std::string& path) {
  JsonWriter json;
  json.begin_object().member("path", path).member("parity", proof.parity());
  json.key("encoded").begin_array();
  for (const proof::EncoderCase& prompt : proof.cases) {
    json.begin_object().member("prompt", prompt.prompt).member("tokens", prompt.tokens);
    json.member("parity", prompt.parity()).key("tensors").begin_array();
    for (const proof::EncodedTensor& tensor : prompt.tensors) {
      const proof::ValueMetrics& m = tensor.metrics;
      json.begin_object().member("name", tensor.name).member("parity", tensor.within);
      json.member("max_abs", m.max_abs).member("mean_abs", m.mean_abs);
      json.member("rel_rms", m.rel_rms).member("cosine", m.cosine).member("sqnr_db", m.sqnr_db);
      json.member("floor_db", tensor.floor_db).end_object();
    }
    json.end_array().member("not_compared", prompt.not_compared).end_object();
  }
  return json.end_array().end_object().take();
}

std::string tensor_line(const proof::EncodedTensor& tensor) {
  const proof::ValueMetrics& m = tensor.metrics;
  const std::string floor =
      tensor.floor_db ? fmt::format(" (at least {:.1f})", *tensor.floor_db) : std::string();
  return fmt::format("  {}: max abs {:.3g}, {:.1f} dB{}{}\n", tensor.name, m.max_abs, m.sqnr_db,
                     floor, tensor.within ? "" : ", beyond its bounds");
}

// The outputs of each prompt, and what is beyond its bounds.
std::string encoder_text(const proof::EncoderProof& proof) {
  std::string text;
  for (const proof::EncoderCase& prompt : proof.cases) {
    text += fmt::format("prompt {}: {} tokens\n", quoted(prompt.prompt), prompt.tokens);
    for (const proof::EncodedTensor& tensor : prompt.tensors) {
      const bool inside =
          tensor.name.starts_with("hidden_states.") || tensor.name == "last_layer_prenorm";
      if (!inside || !tensor.within) text += tensor_line(tensor);
    }
    for (const std::string& tensor : prompt.not_compared) {
      text += fmt::format("  {}: not compared\n", tensor);
    }
  }
  return text + fmt::format("{}: {} prompts\n", proof.parity() ? "parity" : "no parity",
                            proof.cases.size());
}

// The first tensor beyond its bounds.
void say_why(const proof::EncoderProof& proof, const std::string& path) {
  for (const proof::EncoderCase& prompt : proof.cases) {
    for (const proof::EncodedTensor& tensor : prompt.tensors) {
      if (tensor.within) continue;
      fmt::print(stderr, "ferry: no parity: {}: prompt {}: {} differs by {:.3g} ({:.1f} dB)\n",
                 printable(path), quoted(prompt.prompt), tensor.name, tensor.metrics.max_abs,
                 tensor.metrics.sqnr_db);
      return;
    }
  }
}

}  // namespace

Result<int> verify_encoder(Context& context, const packer::Bundle& bundle, const std::string& path,
                           const pipeline::VerifyOptions& options) {
  const std::string file = FERRY_TRY(reference_of(bundle, options));
  const std::unique_ptr<TensorSource> source = FERRY_TRY(formats::open_tensors(file));
  const proof::Reference reference = FERRY_TRY(proof::Reference::open(*source));
  runner::TextEncoder encoder =
      FERRY_TRY(runner::TextEncoder::load(bundle, context.pool(), {.memory = options.memory}));
  const proof::EncoderProof proof = FERRY_TRY(proof::prove_encoder(
      encoder, bundle.manifest(), reference, proof::bounds_of(bundle, options.tolerance),
      context.progress("running the bundle", ProgressUnit::kItems)));
  const int code = proof.parity() ? 0 : 1;
  if (context.json) {
    context.print_result(encoder_json(proof, path), code);
  } else if (!context.quiet) {
    context.print(encoder_text(proof));
  }
  if (code == 0) return code;
  context.flush();
  say_why(proof, path);
  return code;
}

}  // namespace ferry::cli
