// The steps of open_loose_programs(): they find the data files of programs that come without a
// manifest, names for their inputs and outputs, and the sizes of the model. Private to packer/.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "formats/pte/program.h"
#include "packer/bundle_reader.h"
#include "packer/manifest.h"

namespace ferry::packer {

// StatedValues reads what a program states about itself in methods without inputs that return
// literals (ExecuTorch's constant methods, such as get_vocab_size).
class StatedValues {
 public:
  // `program` must outlive this object. `file` begins the messages.
  StatedValues(const pte::Program& program, std::string file)
      : program_(program), file_(std::move(file)) {}

  bool has(std::string_view method) const { return program_.find(method) != nullptr; }
  // Returns nullopt if there is no such method; kBadInput if it gives anything else.
  Result<std::optional<int64_t>> integer(std::string_view method) const;
  Result<std::optional<double>> real(std::string_view method) const;
  Result<std::optional<bool>> boolean(std::string_view method) const;
  // Returns the outputs of a method as a list.
  Result<std::optional<std::vector<int64_t>>> integers(std::string_view method) const;
  Result<std::optional<std::vector<pte::Value>>> list(std::string_view method) const;

  // kBadInput if the method exists and gives another number. `of` says where `number` comes from,
  // such as "the output logits of method 'forward'".
  Status expect(std::string_view method, int64_t number, std::string_view of) const;

  // Returns an error with the message "FILE: method get_x WHAT".
  Failure bad(std::string_view method, const std::string& what) const;
  const std::string& file() const { return file_; }

 private:
  template <class T>
  Result<std::optional<T>> single(std::string_view method, std::string_view expected) const;

  const pte::Program& program_;
  std::string file_;
};

// LooseData finds the data files (.ptd) of programs that come without a manifest. The names of a
// program's external tensors decide which files the program loads.
class LooseData {
 public:
  // Opens files from which any program may take tensors. kUsage for a file that is given twice.
  Status add(const std::vector<std::string>& files);

  // Returns the paths of the files that hold the external tensors of a program and the named data
  // of its delegates: FILE.ptd beside FILE.pte first, then files of add(). Data that is not in the
  // file beside the program comes from the only other file that has it; a tensor must have the
  // right dtype and shape. kBadInput, with the key, if no file or several files have it.
  Result<std::vector<std::string>> files_of(const std::string& file,
                                            const pte::LoadedProgram& program);

  // kUsage for a file of add() from which no program has taken anything.
  Status check_all_used() const;
  const std::map<std::string, BundleData>& files() const { return files_; }
  std::map<std::string, BundleData> take() { return std::move(files_); }

 private:
  Status open(const std::string& path);
  // A tensor of the program or, if `tensor` is null, data of a delegate.
  struct Wanted {
    std::string key;
    const pte::Tensor* tensor = nullptr;

    std::string name() const;  // such as "tensor 'w'"
  };
  // Returns tensors by name, then data of delegates.
  static Result<std::vector<Wanted>> wanted_by(const std::string& file,
                                               const pte::LoadedProgram& program);
  // Returns the entry of a data file, or nullptr. Delegates may read the bytes of tensors too.
  const ptd::NamedTensor* find(const std::string& path, const Wanted& wanted) const;
  // Returns the file of add() that has the data; empty if there is none.
  Result<std::string> find_given(const std::string& file, const Wanted& wanted) const;

  std::map<std::string, BundleData> files_;  // by path
  std::vector<std::string> given_;
  std::set<std::string> used_;
};

// Names the inputs and outputs of programs that come without a manifest. Names follow from the
// positions that ExecuTorch's exporters use, and dtype and shape must fit the name. Everything else
// is refused with file, method and position. docs/running.md describes the order.

// Signature: (tokens i64 [1,T] or embeddings f32 [1,T,E], input_pos i64 [1]) -> logits f32 [1,V] or
// [1,T,V]
Result<ManifestMethod> name_stateful_decoder(const pte::Method& method, const std::string& file);

// Signature: tokens i32 [1,A] or embeddings f32 [1,A,E], attention_mask [1,1,A,S], window_mask of
// an equal shape if there is a second mask, input_pos i32 [1,A], keys of all layers, values of all
// layers, states -> logits, new keys, new values, new states. Layers without a cache are left out,
// and the others are numbered from 0. `caches` is the number of keys and values if another method
// has told it, because states and caches look alike if a call is as long as a state.
Result<ManifestMethod> name_static_decoder(const pte::Method& method, const StatedValues& stated,
                                           std::optional<size_t> caches);

// Signature: tokens of dtype `ids` [1,T] -> embeddings f32 [1,T,E]
Result<ManifestMethod> name_token_embedding(const pte::Method& method, DType ids,
                                            const std::string& file);

// Signature: pixel_values f32 [1,3,H,W] -> image_features f32 [1,N,E]
Result<ManifestMethod> name_vision_encoder(const pte::Method& method, const std::string& file);

// Returns nullptr if there is none of this name.
const ManifestPort* find_port(const std::vector<ManifestPort>& ports, std::string_view name);
// Returns the number of k_cache and v_cache inputs.
size_t count_caches(const ManifestMethod& method);

// Sets vocab_size, hidden_size, num_layers, context_length, prefill_length, all_logits and
// rope_switch of `manifest` from the named inputs and outputs of `decoder` and from the values that
// the program states. `manifest` must have program_style. kBadInput, with the method, if a stated
// value differs from the shapes; kUnsupported if the program states a batch or no cache.
Status derive_sizes(const ManifestProgram& decoder, const StatedValues& stated, Manifest& manifest);

// kUnsupported if the names of external tensors of `program` ("layers.3.attention...") do not cover
// all `layers` layers, so that the program is a part of a model. 0: any number of layers.
Status check_layers(const pte::Program& program, int64_t layers, const std::string& file);

}  // namespace ferry::packer
