// The adapters of a bundle: small data files, each of which changes the weights of one base.
#pragma once

#include <ferry/engine.h>
#include <ferry/result.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ferry {
inline namespace v0 {

struct AdapterEdit {
  std::string bundle = {};   // a bundle directory that was converted with adapters
  std::string name = {};     // for Bundle::with_adapter(): letters, digits, '-', '_' and '.'
  std::string adapter = {};  // directory as peft writes it; for add_adapter()
  bool overwrite = false;    // replaces an adapter of this name
  // Paths of PEM files of the key that signs the new bundle, as in SignOptions. A signed bundle
  // needs the key.
  std::string private_key = {}, passphrase_file = {}, certificate = {};
  std::vector<std::string> chain = {};
};

struct AdapterInfo {
  std::string name;
  std::string file;  // its data file in the bundle
  uint64_t bytes = 0;
  std::string sha256;  // of the data file
};

// A weight for which adapters may have factors.
struct AdapterSlot {
  std::string weight;      // runtime name, such as "layers.0.attention.wq.weight"
  bool embedding = false;  // a table, not the matrix of a linear layer
  int64_t rank = 0;        // the largest rank that fits
};

struct AdapterList {
  std::string dtype;  // of the factors; empty where the programs take none
  std::vector<AdapterSlot> factors;
  std::vector<AdapterInfo> adapters;
};

// Adds an adapter; no byte of the base changes. A new directory takes the place of the bundle in
// one step. kUnsupported, by name, for what its programs cannot hold; kExists for an adapter of
// this name; kUsage for a signed bundle without a key.
Result<AdapterInfo> add_adapter(const AdapterEdit& edit, const Engine& engine,
                                const OnProgress& progress = {});

// Removes the adapter in the same way. kUsage if there is none of this name.
Status remove_adapter(const AdapterEdit& edit, const Engine& engine,
                      const OnProgress& progress = {});

// Lists the adapters of a bundle, and what adapters it can hold.
Result<AdapterList> list_adapters(const std::string& bundle, const Engine& engine);

}  // namespace v0
}  // namespace ferry
