// Gathers what is known of a bundle for its card: from the bundle, from the card of its checkpoint,
// from the checkpoint itself, and from a proof.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "card/checkpoint_card.h"
#include "card/proof_figures.h"
#include "core/progress.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "proof/attestation.h"

namespace ferry::card {

struct FactOptions {
  // The checkpoint that the bundle was made of; empty: none. `config` and `lora` are as for
  // `convert`.
  std::string checkpoint = {}, config = {}, lora = {};
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
