// ProgramSet: the programs of one component of a bundle, loaded and ready to execute. A decoder for
// each protocol stands on it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "core/shape.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "runner/method.h"

namespace ferry::runner {

// The type that a protocol expects of an input or output of its methods.
struct PortType {
  std::string_view name;
  DType dtype;
  Shape shape;  // the largest that the port must take, and no larger
};

// One method of every program of a set, executed in order as one function. Its ports are found by
// name once, when it is bound. The ProgramSet must outlive it.
class MethodChain {
 public:
  struct Link {
    Method* method;
    const packer::ManifestMethod* ports;
    std::string file;  // of its program, for messages
    // Per input of the method: an output of an earlier link, or with link -1 an input of the chain.
    struct Source {
      int link;
      size_t port;
    };
    std::vector<Source> sources = {};
  };

  // To be set before each run(); the bytes must stay until it returns. It keeps its contents, so
  // that a caller can change a size without an allocation.
  TensorView& input(size_t index) { return inputs_[index]; }
  // As Method::want_rows, for an output of the chain.
  void want_rows(size_t index, int64_t begin, int64_t count);
  Status run();
  // Valid until the next run().
  const TensorView& output(size_t index) const;

  // In the order of execution.
  std::span<const Link> links() const { return links_; }

 private:
  friend class ProgramSet;
  std::vector<Link> links_;
  std::vector<TensorView> inputs_;
  std::vector<Link::Source> outputs_;
};

// Movable. A MethodChain stays valid when it moves.
class ProgramSet {
 public:
  // Loads every method of the component `role`, all of them within one budget of planned memory.
  // Methods of one program share their state. `pool` must outlive the set. kBadInput if the bundle
  // has no such component; other errors as for Method::load_all.
  static Result<ProgramSet> load(const packer::Bundle& bundle, std::string_view role,
                                 ThreadPool& pool, const MethodOptions& options);
  // Loads them with memory from a budget that pays for other memory too.
  static Result<ProgramSet> load(const packer::Bundle& bundle, std::string_view role,
                                 ThreadPool& pool, const MethodOptions& options,
                                 MemoryBudget& budget);

  const packer::Bundle& bundle() const { return bundle_; }

  // Whether the first program has the method `name`; bind() tells of others that have it not.
  bool has(std::string_view name) const { return programs_.front().entry->find(name) != nullptr; }
  // The ports that the method `name` has as a whole: inputs that no earlier program gives, and
  // outputs of all programs, in their order. Of several of one name the first input and the last
  // output.
  struct Ports {
    std::vector<packer::ManifestPort> inputs, outputs;
  };
  Ports ports(std::string_view name) const;

  // Binds the method `name` of every program. An input of a program comes from the output of the
  // same name of the nearest earlier program, else from the chain's input of that name. kBadInput
  // names the first port that has no source or is not of the type that the protocol expects;
  // kUnsupported a program without the method.
  Result<MethodChain> bind(std::string_view name, std::span<const PortType> inputs,
                           std::span<const PortType> outputs);

 private:
  explicit ProgramSet(const packer::Bundle& bundle) : bundle_(bundle) {}

  packer::Bundle bundle_;  // shares the mapped files
  struct Program {
    const packer::ManifestProgram* entry;
    std::vector<Method> methods;  // in the order of the entry
  };
  std::vector<Program> programs_;  // in order of execution
};

}  // namespace ferry::runner
