#include "cli/verify_gguf.h"

#include <fmt/format.h>

#include <cstdio>
#include <vector>

#include "convert/gguf_proof.h"
#include "core/json_writer.h"
#include "core/text.h"

namespace ferry::cli {
namespace {

std::string gguf_json(const convert::GgufProof& proof, const std::string& file) {
  JsonWriter json;
  json.begin_object();
  json.member("path", file).member("parity", proof.parity());
  json.member("file_type", proof.file_type);
  json.key("tensors").begin_object();
  json.member("compared", proof.tensors).member("bytes", proof.bytes);
  json.member("different", proof.different_tensors);
  json.end_object();
  json.key("keys").begin_object();
  json.member("compared", proof.keys).member("different", proof.different_keys);
  json.end_object();
  json.member("notes", proof.notes);
  json.end_object();
  return json.take();
}

std::string gguf_text(const convert::GgufProof& proof) {
  return fmt::format(
      "{}: {} tensors ({}, {} different), {} keys ({} different)\n{}\n", proof.file_type,
      proof.tensors, human_bytes(proof.bytes), proof.different_tensors.size(), proof.keys,
      proof.different_keys.size(),
      proof.parity() ? "every tensor and every key is what the checkpoint gives" : "no parity");
}

}  // namespace

Result<int> verify_gguf(Context& context, const std::string& file,
                        convert::GgufProofOptions options) {
  options.progress = context.progress("comparing tensors");
  const convert::GgufProof proof = FERRY_TRY(convert::prove_gguf(file, options, context.pool()));
  const int exit = proof.parity() ? 0 : 1;
  if (context.json) {
    context.print_result(gguf_json(proof, file), exit);
  } else if (!context.quiet) {
    context.print(gguf_text(proof));
  }
  for (const std::string& note : proof.notes) context.note(note);
  if (exit == 0) return 0;
  context.flush();
  for (const auto* lines : {&proof.different_tensors, &proof.different_keys}) {
    for (const std::string& line : *lines) {
      fmt::print(stderr, "ferry: no parity: {}: {}\n", printable(file), line);
    }
  }
  return 1;
}

}  // namespace ferry::cli
