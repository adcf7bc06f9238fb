// ProgramSet holds the programs of one component of a bundle, loaded and ready to execute. The
// decoders of all protocols use it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "runner/method.h"

namespace ferry::runner {

// The type that a protocol requires of an input or output of its methods.
struct PortType {
  std::string_view name;
  DType dtype;
  Shape shape;  // the exact upper bounds of the sizes
};

// One method of every program of a set, executed in order as one function. Its inputs and outputs
// are found by name once, when it is bound. The ProgramSet must outlive it.
class MethodChain {
 public:
  struct Link {
    Method* method;
    const packer::ManifestMethod* ports;
    std::string file;  // the file of the link's program, for messages
    // The source of each input of the method: an output of an earlier link, or with link -1 an
    // input of the chain.
    struct Source {
      int link;
      size_t port;
    };
    std::vector<Source> sources = {};
  };

  // Must be set before each run(); the bytes must stay until run() returns. The view keeps its
  // contents, so that a caller can change a size without an allocation.
  TensorView& input(size_t index) { return inputs_[index]; }
  // Method::want_rows() for an output of the chain.
  void want_rows(size_t index, int64_t begin, int64_t count);
  // Method::can_be_strided() for an input of the chain, and Method::set_stored_columns().
  bool can_be_strided(size_t index) const;
  void set_stored_columns(int64_t columns);
  Status run();
  // Runs chains of several loads of one component, each once (Method::execute_together).
  static Status run_together(std::span<MethodChain* const> chains);
  // Valid until the next run.
  const TensorView& output(size_t index) const;

  // Returns the links in order of execution.
  std::span<const Link> links() const { return links_; }

 private:
  friend class ProgramSet;
  // Sets the inputs of the link's method.
  Status set_inputs(const Link& link);

  std::vector<Link> links_;
  std::vector<TensorView> inputs_;
  std::vector<Link::Source> outputs_;
};

// A ProgramSet is movable, and a MethodChain stays valid when it moves.
class ProgramSet {
 public:
  // Loads every method of the component `role`, all within one budget of planned memory. Methods of
  // one program share their state. `pool` must outlive the set. kBadInput if the bundle has no such
  // component; other errors as for Method::load_all.
  static Result<ProgramSet> load(const packer::Bundle& bundle, std::string_view role,
                                 ThreadPool& pool, const MethodOptions& options);
  // Loads the component with memory from a budget that other programs share.
  static Result<ProgramSet> load(const packer::Bundle& bundle, std::string_view role,
                                 ThreadPool& pool, const MethodOptions& options,
                                 MemoryBudget& budget);

  const packer::Bundle& bundle() const { return bundle_; }

  // Returns whether the first program has the method `name`. bind() reports other programs without
  // it.
  bool has(std::string_view name) const { return programs_.front().entry->find(name) != nullptr; }
  // The inputs and outputs of the method `name` over all programs: inputs that no earlier program
  // gives, and all outputs, in their order. If several have one name, the first input and the last
  // output are taken.
  struct Ports {
    std::vector<packer::ManifestPort> inputs, outputs;
  };
  Ports ports(std::string_view name) const;

  // Binds the method `name` of every program. An input of a program comes from the output with its
  // name of the nearest earlier program, else from the chain's input of that name. kBadInput names
  // the first input or output that has no source or not the type that the protocol requires;
  // kUnsupported names a program without the method.
  Result<MethodChain> bind(std::string_view name, std::span<const PortType> inputs,
                           std::span<const PortType> outputs);

 private:
  explicit ProgramSet(const packer::Bundle& bundle) : bundle_(bundle) {}

  packer::Bundle bundle_;  // shares the mapped files
  struct Program {
    const packer::ManifestProgram* entry;
    std::vector<Method> methods;  // in the order of the manifest's entry
  };
  std::vector<Program> programs_;  // in order of execution
};

}  // namespace ferry::runner
