// Gathers what is known of a bundle for its card: from the bundle, from the card of its checkpoint,
// from the checkpoint itself, and from a proof.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/progress.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "proof/attestation.h"
#include "signing/verify_envelope.h"

namespace ferry::card {

// CheckpointCard has the fields of a checkpoint's model card, in the format of Hugging Face, that a
// card of the bundle takes over.
struct CheckpointCard {
  // Ids of licences as Hugging Face spells them, such as "apache-2.0" or "other".
  std::vector<std::string> licenses = {};
  std::string license_name = {}, license_link = {};  // of the licence "other"
  std::vector<std::string> base_models = {}, datasets = {}, languages = {}, tags = {};
  std::string pipeline_tag = {};
};

// Reads the YAML at the head of a model card, as Hugging Face's tools find it (checkpoint_card.cc).
// kBadInput, with line and field, for a field of another form, and for front matter that is not one
// plain mapping. A text without front matter gives an empty card.
Result<CheckpointCard> read_checkpoint_card(std::string_view text, const std::string& name);

// -- what was proved of a bundle, by a parity attestation (docs/attestation.md) or a parity report
// as JSON (docs/reports.md); read by proof_figures.cc

struct ProvedFigure {
  std::string id, ours, expected, output;
  std::string precision, source;                    // of the bounds
  std::optional<double> max_abs_bound, floor;       // bounds: the largest distance; dB
  std::optional<double> max_abs, sqnr_db, kl_mean;  // dB of the SQNR; nats
  std::optional<double> top1_agreement;             // a share, 0 to 1
  int64_t greedy_match = 0, greedy_total = 0;       // tokens
};

struct ProofFigures {
  std::string name;    // name of the file, without directories
  std::string text;    // the whole file
  std::string sha256;  // of `text`
  bool attested = false;
  // Who signed the attestation. Absent if there was no key to check it with, and for reports.
  std::optional<signing::Signer> signer = {};
  std::string claim;  // one sentence
  std::string ferry;  // version of the program that compared
  std::vector<ProvedFigure> figures = {};
  std::vector<std::string> proves = {}, does_not_prove = {};
};

// The bundle that the proof must be about.
struct ProvedBundle {
  const proof::BundleDigest& digest;
  std::string manifest_sha256;  // as the manifest states it of itself
};

// Reads the file at `path`. With `trust` the signature of an attestation is verified. kBadInput for
// a file of another kind, a signature that is not trusted, a report without parity, and a proof of
// another bundle; kUsage for `trust` with a report.
Result<ProofFigures> read_proof(const std::string& path, const ProvedBundle& bundle,
                                const std::optional<signing::Trust>& trust);

struct FactOptions {
  // The checkpoint that the bundle was made of; empty: none. `config` and `lora` are as for
  // `convert`.
  std::string checkpoint = {}, config = {}, lora = {}, mmproj = {};
  // The checkpoint's name at Hugging Face, "ORG/NAME"; empty: as the path of the cache says it.
  std::string checkpoint_name = {};
  std::string proof = {};                    // a parity attestation or a parity report; empty: none
  std::optional<signing::Trust> trust = {};  // whom to trust with the attestation
};

// A file of the bundle.
struct FactFile {
  enum class Kind { kManifest, kProgram, kWeights, kReference, kOther };
  std::string name, sha256;
  uint64_t bytes = 0;
  Kind kind = Kind::kOther;
};
// A file of the checkpoint.
struct FactSource {
  std::string name;
  uint64_t bytes = 0;
  std::string sha256_tree;   // of a file with tensors, as in the manifest; empty for other files
  std::string sha256 = {};   // of the whole file; empty if there was no checkpoint to hash
  std::string bundled = {};  // name of the file of the bundle that has the same bytes
};

struct Facts {
  std::string bundle;           // last component of the path
  std::string root;             // SHA-256 that is the subject of the bundle's signature
  std::string manifest_sha256;  // as the manifest states it of itself
  packer::Manifest manifest = {};
  std::vector<FactFile> files = {};  // ascending by name
  uint64_t bytes = 0;                // of all files
  bool is_signed = false;            // the bundle has a model.sig that lists these digests
  std::string architecture = {};     // the first one of config.json
  CheckpointCard card = {};
  std::string card_file = {};          // where `card` was read, for people; empty if there is none
  std::string checkpoint_name = {};    // "ORG/NAME" at Hugging Face; may be empty
  std::string checkpoint_commit = {};  // commit of the snapshot; may be empty
  std::vector<FactSource> sources = {};
  std::optional<ProofFigures> proof = {};
};

// `bundle` was opened with its digests checked. kBadInput if the card of the checkpoint is damaged,
// if the checkpoint is not the one that the bundle was made of, if model.sig is not about these
// files, and for the reasons of read_proof().
Result<Facts> gather_facts(const packer::Bundle& bundle, const FactOptions& options,
                           ThreadPool& pool);

// Returns the quantisation of the model's main component, such as "8da4w-g32"; empty if there is
// none.
std::string quantization_of(const packer::Manifest& manifest);

}  // namespace ferry::card
