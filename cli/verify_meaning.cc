#include "cli/verify_meaning.h"

#include <fmt/format.h>

#include "core/text.h"

namespace ferry::cli {
namespace {

// What makes errors: "bf16 rounding", "8da4w-g32 quantisation".
std::string loss_name(const proof::ParityBounds& bounds) {
  return rounding_name(bounds) + (bounds.coded_db ? " quantisation" : " rounding");
}

std::string within(const proof::ParityBounds& bounds) {
  if (bounds.given) return " within --tolerance";
  if (!bounds.has_floors()) return " within the noise of f32";
  if (bounds.noise) return " within the noise of its own rounding";
  return fmt::format(" within the error of {}", loss_name(bounds));
}

void add_codes(const proof::CodedProof& codes, Meaning& m) {
  if (!codes.absent.empty()) {
    m.leaves_open.push_back(
        "mistakes of the program that change outputs by less than quantisation does: " +
        codes.absent);
    return;
  }
  m.proves.push_back(
      "with activations in f32 the bundle computes what the model computes with the same codes and "
      "scales: no error of it is taken for quantisation");
  if (codes.activations.bounds.coded_db) {
    m.proves.push_back("as it is, it differs from that by what 8-bit activations lose");
  }
}

Meaning outputs_meaning(const proof::Verification& v) {
  Meaning m;
  if (v.proof) {
    m.proves.push_back("every stored weight is, bit for bit, what the checkpoint gives");
    m.proves.push_back(
        "every program is, byte for byte, what this version of Ferry makes of the checkpoint");
    if (v.proof->encodings) {
      m.proves.push_back("every encoding is what calibration gives, for its prompts");
    }
    if (v.has_reference) {
      m.proves.push_back("the checkpoint's model in f32 computes what the reference says");
    } else {
      m.leaves_open.push_back(
          "that Ferry computes what the original model computes: add --reference");
    }
    if (v.proof->codes) add_codes(*v.proof->codes, m);
    return m;
  }
  if (!v.against.empty()) {
    m.proves.push_back(fmt::format("the bundle computes what {} computes{}, for these prompts",
                                   quoted(v.against), within(v.direct->bounds)));
    m.leaves_open.push_back(fmt::format(
        "that {} is right: verify it with --reference or --checkpoint", quoted(v.against)));
    m.leaves_open.push_back("weights that these prompts do not use: use --checkpoint");
    return m;
  }
  m.leaves_open.push_back("weights that the prompts of the reference do not use: add --checkpoint");
  if (v.direct) {
    m.proves.push_back(v.direct->bounds.given
                           ? "the bundle is within --tolerance of the reference, for its prompts"
                           : "the bundle computes what the reference says, for its prompts");
    return m;
  }
  const std::string loss = loss_name(v.rounding->outputs.bounds);
  if (v.rounding->exact_weights) {
    m.proves.push_back(
        "the bundle's program with activations in f32 computes what the reference says, for its "
        "prompts");
    m.leaves_open.push_back(fmt::format("what {} of activations does: it is measured", loss));
    return m;
  }
  m.proves.push_back(
      fmt::format("the bundle is within the error of {} of the reference, for its prompts", loss));
  m.leaves_open.push_back(fmt::format(
      "mistakes that change outputs by less than {} of weights: add --checkpoint", loss));
  return m;
}

}  // namespace

std::string rounding_name(const proof::ParityBounds& bounds) {
  if (bounds.coded_db) return bounds.coding;
  return bounds.rounding ? std::string(dtype_name(*bounds.rounding)) : "f32";
}

Meaning meaning_of(const proof::Verification& v) {
  Meaning m = outputs_meaning(v);
  for (const proof::ModeProof& mode : v.modes) {
    if (!mode.report) continue;
    const std::string how =
        mode.in_f32 ? " within what rounding activations loses, and with activations in f32" +
                          within(mode.in_f32->bounds)
                    : within(mode.report->bounds);
    m.proves.push_back(fmt::format("mode {} computes what mode kv computes{}, for these prompts",
                                   name_of(mode.mode), how));
  }
  return m;
}

}  // namespace ferry::cli
