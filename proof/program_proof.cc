#include "proof/program_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <variant>

#include "core/encoding.h"
#include "core/text.h"

namespace ferry::proof {
namespace {

constexpr uint64_t kTile = uint64_t{1} << 20;

// Returns the values that an instruction names, including its outputs.
std::vector<int32_t> values_of(const pte::Instruction& instruction) {
  if (const auto* call = std::get_if<pte::KernelCall>(&instruction)) return call->args;
  if (const auto* move = std::get_if<pte::MoveCall>(&instruction)) return {move->from, move->to};
  if (const auto* jump = std::get_if<pte::JumpFalseCall>(&instruction)) return {jump->condition};
  if (const auto* call = std::get_if<pte::DelegateCall>(&instruction)) return call->args;
  return {std::get<pte::FreeCall>(instruction).value};
}

std::string operator_of(const pte::Method& method, const pte::Instruction& instruction) {
  const auto* call = std::get_if<pte::KernelCall>(&instruction);
  return call == nullptr ? "no operator"
                         : method.operators[static_cast<size_t>(call->op)].full_name();
}

// Returns a text that identifies the kind of an instruction.
std::string kind_of(const pte::Method& method, const pte::Instruction& instruction) {
  const auto* jump = std::get_if<pte::JumpFalseCall>(&instruction);
  return fmt::format("{} {} {}", instruction.index(), operator_of(method, instruction),
                     jump == nullptr ? 0 : jump->destination);
}

// Finds the first instruction of two methods that differs in what it computes.
class MethodDifference {
 public:
  // `stated` is the manifest's entry of the method, `entry` that of its program.
  MethodDifference(const pte::ProgramData& data, const pte::Method& have, const pte::Method& want,
                   const std::vector<graph::Literal>& constants,
                   const packer::ManifestProgram& entry, const packer::ManifestMethod& stated)
      : data_(data),
        have_(have),
        want_(want),
        constants_(constants),
        entry_(entry),
        stated_(stated) {}

  // Returns nullopt if only the memory plan differs.
  std::optional<std::string> find() {
    int64_t layer = entry_.first_layer == 0 ? -1 : entry_.first_layer;
    const size_t common = std::min(have_.instructions.size(), want_.instructions.size());
    for (size_t i = 0; i < common; ++i) {
      const pte::Instruction& ours = have_.instructions[i];
      if (auto what = difference(ours, want_.instructions[i])) return at(i, layer, *what);
      layer = layer_after(ours, layer);
    }
    if (have_.instructions.size() == want_.instructions.size()) return std::nullopt;
    return at(common, layer,
              fmt::format("{} instructions instead of {}", have_.instructions.size(),
                          want_.instructions.size()));
  }

 private:
  std::string at(size_t index, int64_t layer, const std::string& what) const {
    const std::string name = index < have_.instructions.size()
                                 ? operator_of(have_, have_.instructions[index])
                                 : "the end";
    const std::string where = layer < 0 ? "before layer 0" : fmt::format("layer {}", layer);
    return fmt::format("{}, instruction {} ({}): {}", where, index, name, what);
  }

  // Probes of hidden states tell where a layer ends.
  int64_t layer_after(const pte::Instruction& instruction, int64_t layer) const {
    const std::vector<int32_t> values = values_of(instruction);
    for (const packer::ManifestProbe& probe : stated_.probes) {
      if (values.empty() || probe.value != values.back()) continue;
      if (probe.name == "last_layer_prenorm")
        return int64_t{entry_.first_layer} + entry_.layer_count;
      if (const auto after = number_after(probe.name, "hidden_states.")) return *after;
    }
    return layer;
  }

  std::optional<std::string> difference(const pte::Instruction& ours,
                                        const pte::Instruction& theirs) {
    if (kind_of(have_, ours) != kind_of(want_, theirs)) {
      return fmt::format("{} is expected", operator_of(want_, theirs));
    }
    const std::vector<int32_t> left = values_of(ours);
    const std::vector<int32_t> right = values_of(theirs);
    if (left.size() != right.size()) return "another number of arguments";
    for (size_t i = 0; i < left.size(); ++i) {
      if (auto what = value_difference(left[i], right[i])) {
        return fmt::format("argument {}{}", i, *what);
      }
    }
    return std::nullopt;
  }

  // Returns an empty text if there is no more to say than that the two values differ.
  std::optional<std::string> value_difference(int32_t ours, int32_t theirs) {
    if (ours < 0 || theirs < 0) return ours == theirs ? std::nullopt : std::optional(std::string());
    const pte::Value& left = have_.values[static_cast<size_t>(ours)];
    const pte::Value& right = want_.values[static_cast<size_t>(theirs)];
    if (left.index() != right.index()) return " has another kind";
    if (const auto* tensor = std::get_if<pte::Tensor>(&left)) {
      auto what = tensor_difference(*tensor, std::get<pte::Tensor>(right));
      return what ? what : identity_difference(ours, theirs);
    }
    if (const auto* number = std::get_if<double>(&left)) {
      if (*number == std::get<double>(right)) return std::nullopt;
      return fmt::format(" is {}, expected {}", *number, std::get<double>(right));
    }
    if (const auto* number = std::get_if<int64_t>(&left)) {
      if (*number == std::get<int64_t>(right)) return identity_difference(ours, theirs);
      return fmt::format(" is {}, expected {}", *number, std::get<int64_t>(right));
    }
    if (const auto* list = std::get_if<pte::IntList>(&left)) {
      return list_difference(list->items, std::get<pte::IntList>(right).items);
    }
    if (const auto* list = std::get_if<pte::TensorList>(&left)) {
      return list_difference(list->items, std::get<pte::TensorList>(right).items);
    }
    if (const auto* list = std::get_if<pte::OptionalTensorList>(&left)) {
      return list_difference(list->items, std::get<pte::OptionalTensorList>(right).items);
    }
    return left == right ? std::nullopt : std::optional(std::string(" differs"));
  }

  // Two values of equal shape, or two computed integers, are distinguished by where else they
  // occur: the mapping from ours to theirs must be one to one.
  std::optional<std::string> identity_difference(int32_t ours, int32_t theirs) {
    const int32_t forth = theirs_of_.emplace(ours, theirs).first->second;
    const int32_t back = ours_of_.emplace(theirs, ours).first->second;
    if (forth == theirs && back == ours) return std::nullopt;
    return " is another value";
  }

  std::optional<std::string> list_difference(const std::vector<int32_t>& ours,
                                             const std::vector<int32_t>& theirs) {
    if (ours.size() != theirs.size()) return " is a list of another length";
    for (size_t i = 0; i < ours.size(); ++i) {
      if (auto what = value_difference(ours[i], theirs[i])) return what;
    }
    return std::nullopt;
  }

  // Compares tensors, but not their positions in planned memory.
  std::optional<std::string> tensor_difference(const pte::Tensor& ours, const pte::Tensor& theirs) {
    if (ours.fqn != theirs.fqn || ours.external != theirs.external) {
      return fmt::format(" is {}, expected {}", quoted(ours.fqn), quoted(theirs.fqn));
    }
    if (ours.dtype != theirs.dtype || ours.sizes != theirs.sizes ||
        ours.dynamism != theirs.dynamism) {
      return " has another dtype or shape";
    }
    const bool constant = !ours.external && !ours.allocation && ours.data_index > 0;
    if (!constant || theirs.data_index == 0) {
      return (ours.data_index > 0) == (theirs.data_index > 0)
                 ? std::nullopt
                 : std::optional(std::string(" has other initial contents"));
    }
    const graph::Literal& literal = constants_[theirs.data_index];
    if (same_constant(ours, theirs)) return std::nullopt;
    if (literal.bytes == sizeof(float) && ours.dtype == DType::kF32) {
      return fmt::format(" is {:g}, expected {:g}", scalar_of(data_.constants[ours.data_index]),
                         scalar_of(contents(literal)));
    }
    return fmt::format(" is another constant than {}", quoted(literal.key));
  }

  static std::vector<std::byte> contents(const graph::Literal& literal) {
    std::vector<std::byte> bytes(literal.bytes);
    literal.fill(0, bytes);
    return bytes;
  }
  static float scalar_of(std::span<const std::byte> bytes) {
    float value = 0;
    if (bytes.size() >= sizeof value) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }

  bool same_constant(const pte::Tensor& ours, const pte::Tensor& theirs) {
    const auto [known, fresh] = compared_.try_emplace({ours.data_index, theirs.data_index}, true);
    if (!fresh) return known->second;
    const graph::Literal& literal = constants_[theirs.data_index];
    const std::span<const std::byte> bytes = data_.constants[ours.data_index];
    if (bytes.size() < literal.bytes) return known->second = false;
    std::vector<std::byte> tile(std::min(kTile, literal.bytes));
    for (uint64_t at = 0; at < literal.bytes && known->second; at += kTile) {
      const std::span<std::byte> want = std::span(tile).first(std::min(kTile, literal.bytes - at));
      literal.fill(at, want);
      known->second = std::ranges::equal(want, bytes.subspan(at, want.size()));
    }
    return known->second;
  }

  const pte::ProgramData& data_;
  const pte::Method& have_;
  const pte::Method& want_;
  const std::vector<graph::Literal>& constants_;
  const packer::ManifestProgram& entry_;
  const packer::ManifestMethod& stated_;
  std::map<std::pair<uint32_t, uint32_t>, bool> compared_;  // constants, by both indices
  std::map<int32_t, int32_t> theirs_of_, ours_of_;  // values that were compared before, by index
};

// Returns the first byte where the bundle's program file differs from the plan.
std::optional<uint64_t> first_difference(std::span<const std::byte> have,
                                         const packer::BundlePlan& plan, size_t index,
                                         uint64_t planned) {
  std::vector<std::byte> tile(std::min<uint64_t>(kTile, have.size()));
  for (uint64_t at = 0; at < have.size(); at += kTile) {
    const std::span<const std::byte> ours =
        have.subspan(at, std::min<uint64_t>(kTile, have.size() - at));
    const std::span<std::byte> want = std::span(tile).first(ours.size());
    plan.read_program(index, at, want);
    const auto differs = std::ranges::mismatch(ours, want).in1;
    if (differs != ours.end()) return at + static_cast<uint64_t>(differs - ours.begin());
  }
  if (have.size() != planned) return std::min<uint64_t>(have.size(), planned);
  return std::nullopt;
}

// Returns what the manifest states about a method of the file of `program`; nullptr if nothing.
const packer::ManifestMethod* stated_method(const packer::Manifest& manifest,
                                            const packer::ManifestProgram& program,
                                            std::string_view name) {
  for (const packer::ManifestProgram* other : manifest.programs()) {
    if (other->file != program.file) continue;
    const auto found =
        std::ranges::find(other->methods, name, &packer::ManifestMethod::name_in_program);
    if (found != other->methods.end()) return &*found;
  }
  return nullptr;
}

std::string describe(const packer::Bundle& bundle, const packer::BundlePlan& plan, size_t index,
                     uint64_t byte) {
  const packer::BundleProgram& have = bundle.programs()[index];
  const packer::ManifestProgram& entry = bundle.entry(index);
  for (const pte::Method& method : plan.program(index).methods) {
    const pte::Method* ours = have.loaded.program.find(method.name);
    if (ours == nullptr) return fmt::format("there is no method {}", quoted(method.name));
    const packer::ManifestMethod* stated = stated_method(bundle.manifest(), entry, method.name);
    if (stated == nullptr) {
      if (*ours == method) continue;
      return fmt::format("method {} returns other values", quoted(method.name));
    }
    const auto what =
        MethodDifference(have.loaded.data, *ours, method, plan.constants(index), entry, *stated)
            .find();
    if (!what) continue;
    return entry.methods.size() == 1 ? *what
                                     : fmt::format("method {}, {}", quoted(method.name), *what);
  }
  return fmt::format("memory plan or encoding, at byte {}", byte);
}

// Returns role, program file and name of every method.
std::vector<std::array<std::string, 3>> methods_of(const packer::Manifest& manifest) {
  std::vector<std::array<std::string, 3>> all;
  for (const packer::ManifestComponent& component : manifest.components) {
    for (const packer::ManifestProgram& program : component.programs) {
      for (const packer::ManifestMethod& method : program.methods) {
        all.push_back({component.role, program.file, method.name});
      }
    }
  }
  return all;
}

std::vector<std::tuple<std::string, std::string, int32_t>> probes_of(
    const packer::Manifest& manifest) {
  std::vector<std::tuple<std::string, std::string, int32_t>> all;
  for (const packer::ManifestProgram* program : manifest.programs()) {
    for (const packer::ManifestMethod& method : program->methods) {
      for (const packer::ManifestProbe& probe : method.probes) {
        all.emplace_back(method.name, probe.name, probe.value);
      }
    }
  }
  return all;
}

// Returns the inputs and outputs of every method with their encodings.
std::vector<std::string> port_names(const packer::Manifest& manifest) {
  std::vector<std::string> all;
  for (const packer::ManifestProgram* program : manifest.programs()) {
    for (const packer::ManifestMethod& method : program->methods) {
      for (const auto* ports : {&method.inputs, &method.outputs}) {
        for (const packer::ManifestPort& port : *ports) {
          const Encoding encoding = port.encoding.value_or(Encoding{0, 0});
          all.push_back(fmt::format("{} {} {} {} {} {}", method.name, port.name,
                                    dtype_name(port.dtype), to_string(port.shape), encoding.scale,
                                    encoding.zero_point));
        }
      }
    }
  }
  return all;
}

// Compares what the runner takes from the manifest and not from a program.
std::vector<std::string> different_statements(const packer::Manifest& have,
                                              const packer::Manifest& want) {
  std::vector<std::string> lines;
  const auto compare = [&](const char* name, const auto& ours, const auto& theirs) {
    if (!(ours == theirs))
      lines.push_back(fmt::format("{}: {} differs", packer::kManifestName, name));
  };
  compare("rope_switch", have.rope_switch, want.rope_switch);
  compare("bos_id", have.bos_id, want.bos_id);
  compare("eos_ids", have.eos_ids, want.eos_ids);
  compare("the list of components, programs and methods", methods_of(have), methods_of(want));
  compare("the list of ports", port_names(have), port_names(want));
  compare("the list of probes", probes_of(have), probes_of(want));
  return lines;
}

}  // namespace

ProgramProof compare_programs(const packer::Bundle& bundle, const packer::BundlePlan& plan) {
  ProgramProof proof;
  const packer::Manifest& planned = plan.manifest();
  const std::vector<const packer::ManifestProgram*> programs = planned.programs();
  const size_t count = std::min(programs.size(), bundle.programs().size());
  std::set<std::string_view> seen;  // components may share a program
  for (size_t i = 0; i < count; ++i) {
    if (!seen.insert(programs[i]->file).second) continue;
    const auto file =
        std::ranges::find(planned.files, programs[i]->file, &packer::ManifestFile::path);
    const auto byte = first_difference(bundle.programs()[i].file.bytes(), plan, i, file->bytes);
    proof.programs += 1;
    if (!byte) continue;
    proof.different.push_back(
        fmt::format("{}: {}", bundle.entry(i).file, describe(bundle, plan, i, *byte)));
  }
  for (std::string& line : different_statements(bundle.manifest(), planned)) {
    proof.different.push_back(std::move(line));
  }
  return proof;
}

}  // namespace ferry::proof
