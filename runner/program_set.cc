#include "runner/program_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/text.h"
#include "runner/memory.h"

namespace ferry::runner {
namespace {

using Source = MethodChain::Link::Source;
constexpr int kChain = -1;

std::vector<ExternalTensor> external_tensors(const packer::Bundle& bundle, size_t program) {
  std::vector<ExternalTensor> tensors;
  for (const packer::BundleData* data : bundle.data_of(program)) {
    for (const ptd::NamedTensor& tensor : data->content.tensors) {
      const ptd::Segment& segment = data->content.segments[tensor.segment];
      tensors.push_back({.key = tensor.key,
                         .dtype = tensor.dtype,
                         .sizes = tensor.sizes,
                         .bytes = data->file.bytes().subspan(segment.offset, segment.size),
                         .is_tensor = tensor.is_tensor});
    }
  }
  return tensors;
}

std::optional<size_t> find_port(std::span<const packer::ManifestPort> ports,
                                std::string_view name) {
  const auto found = std::ranges::find(ports, name, &packer::ManifestPort::name);
  if (found == ports.end()) return std::nullopt;
  return static_cast<size_t>(found - ports.begin());
}

// Finds inputs and outputs by name among the programs that have been bound so far.
class ComponentBinder {
 public:
  ComponentBinder(const packer::Bundle& bundle, std::span<const MethodChain::Link> links,
                  std::span<const PortType> inputs)
      : bundle_(bundle), links_(links), inputs_(inputs) {}

  // Returns the nearest output of that name, if any.
  std::optional<Source> find_output(std::string_view name) const {
    for (size_t i = links_.size(); i-- > 0;) {
      if (const auto port = find_port(links_[i].ports->outputs, name)) {
        return Source{static_cast<int>(i), *port};
      }
    }
    return std::nullopt;
  }

  Result<Source> source_of(const MethodChain::Link& link, size_t input) const {
    const packer::ManifestPort& port = link.ports->inputs[input];
    if (const std::optional<Source> output = find_output(port.name)) return *output;
    const auto given = std::ranges::find(inputs_, port.name, &PortType::name);
    if (given == inputs_.end()) {
      return bad_input(
          fmt::format("{}: no earlier program has an output {}", link.file, quoted(port.name)));
    }
    FERRY_RETURN_IF_ERROR(check_type(link.file, "input", *given, link.method->input_meta(input)));
    return Source{kChain, static_cast<size_t>(given - inputs_.begin())};
  }

  Result<Source> result_of(const PortType& type) const {
    const std::optional<Source> source = find_output(type.name);
    if (!source) {
      return bad_input(fmt::format("{}: no program has an output {}", printable(bundle_.path()),
                                   quoted(type.name)));
    }
    const MethodChain::Link& link = links_[static_cast<size_t>(source->link)];
    PortType expected = type;
    if (link.method->widens() && is_half(expected.dtype)) expected.dtype = DType::kF32;
    FERRY_RETURN_IF_ERROR(
        check_type(link.file, "output", expected, link.method->output_meta(source->port)));
    return *source;
  }

 private:
  static Status check_type(const std::string& file, std::string_view kind, const PortType& expected,
                           const TensorView& actual) {
    if (actual.dtype == expected.dtype && actual.shape == expected.shape) return {};
    return bad_input(fmt::format("{}: {} {} is {}{}, expected {}{}", file, kind,
                                 quoted(expected.name), dtype_name(actual.dtype),
                                 to_string(actual.shape), dtype_name(expected.dtype),
                                 to_string(expected.shape)));
  }

  const packer::Bundle& bundle_;
  std::span<const MethodChain::Link> links_;
  std::span<const PortType> inputs_;
};

}  // namespace

void MethodChain::want_rows(size_t index, int64_t begin, int64_t count) {
  const Link::Source output = outputs_[index];
  const auto reads = [&](const Link& link) {
    return std::ranges::any_of(link.sources, [&](const Link::Source& source) {
      return source.link == output.link && source.port == output.port;
    });
  };
  if (std::ranges::any_of(links_, reads)) return;  // another program needs all rows
  links_[static_cast<size_t>(output.link)].method->want_rows(output.port, begin, count);
}

bool MethodChain::can_be_strided(size_t index) const {
  return std::ranges::all_of(links_, [&](const Link& link) {
    for (size_t i = 0; i < link.sources.size(); ++i) {
      const auto [from, port] = link.sources[i];
      if (from == kChain && port == index && !link.method->can_be_strided(i)) return false;
    }
    return true;
  });
}

void MethodChain::set_stored_columns(int64_t columns) {
  for (const Link& link : links_) link.method->set_stored_columns(columns);
}

Status MethodChain::set_inputs(const Link& link) {
  for (size_t i = 0; i < link.sources.size(); ++i) {
    const auto [from, port] = link.sources[i];
    const TensorView& value =
        from == kChain ? inputs_[port] : links_[static_cast<size_t>(from)].method->output(port);
    FERRY_RETURN_IF_ERROR(link.method->set_input(i, value));
  }
  return {};
}

Status MethodChain::run() {
  for (const Link& link : links_) {
    FERRY_RETURN_IF_ERROR(set_inputs(link));
    FERRY_RETURN_IF_ERROR(link.method->execute());
  }
  return {};
}

Status MethodChain::run_together(std::span<MethodChain* const> chains) {
  std::vector<Method*> methods(chains.size());
  for (size_t i = 0; !chains.empty() && i < chains.front()->links_.size(); ++i) {
    for (size_t c = 0; c < chains.size(); ++c) {
      const Link& link = chains[c]->links_[i];
      FERRY_RETURN_IF_ERROR(chains[c]->set_inputs(link));
      methods[c] = link.method;
    }
    FERRY_RETURN_IF_ERROR(Method::execute_together(methods));
  }
  return {};
}

const TensorView& MethodChain::output(size_t index) const {
  const auto [link, port] = outputs_[index];
  return links_[static_cast<size_t>(link)].method->output(port);
}

Result<ProgramSet> ProgramSet::load(const packer::Bundle& bundle, std::string_view role,
                                    ThreadPool& pool, const MethodOptions& options) {
  MemoryBudget budget(options.memory);
  return load(bundle, role, pool, options, budget);
}

Result<ProgramSet> ProgramSet::load(const packer::Bundle& bundle, std::string_view role,
                                    ThreadPool& pool, const MethodOptions& options,
                                    MemoryBudget& budget) {
  ProgramSet set(bundle);
  for (size_t index : bundle.programs_of(role)) {
    const packer::ManifestProgram& entry = bundle.entry(index);
    std::vector<std::string_view> names;
    for (const packer::ManifestMethod& method : entry.methods)
      names.push_back(method.name_in_program());
    std::vector<Method> methods = FERRY_TRY(Method::load_all(bundle.programs()[index].loaded, names,
                                                             external_tensors(bundle, index), pool,
                                                             options, budget, entry.file));
    set.programs_.push_back({&entry, std::move(methods)});
  }
  if (!set.programs_.empty()) return set;
  return bad_input(
      fmt::format("{}: there is no component {}", printable(bundle.path()), quoted(role)));
}

ProgramSet::Ports ProgramSet::ports(std::string_view name) const {
  Ports all;
  for (const Program& program : programs_) {
    const packer::ManifestMethod* method = program.entry->find(name);
    if (method == nullptr) continue;  // bind() reports it
    for (const packer::ManifestPort& port : method->inputs) {
      if (!find_port(all.inputs, port.name) && !find_port(all.outputs, port.name)) {
        all.inputs.push_back(port);
      }
    }
    for (const packer::ManifestPort& port : method->outputs) {
      if (const auto earlier = find_port(all.outputs, port.name)) {
        all.outputs[*earlier] = port;
      } else {
        all.outputs.push_back(port);
      }
    }
  }
  return all;
}

Result<MethodChain> ProgramSet::bind(std::string_view name, std::span<const PortType> inputs,
                                     std::span<const PortType> outputs) {
  MethodChain chain;
  for (Program& program : programs_) {
    const std::string file = printable(bundle_.path_of(program.entry->file));
    const packer::ManifestMethod* ports = program.entry->find(name);
    if (ports == nullptr) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: there is no method {}", file, quoted(name)));
    }
    const auto at = static_cast<size_t>(ports - program.entry->methods.data());
    MethodChain::Link link{&program.methods[at], ports, file};
    const ComponentBinder binder(bundle_, chain.links_, inputs);
    for (size_t input = 0; input < ports->inputs.size(); ++input) {
      link.sources.push_back(FERRY_TRY(binder.source_of(link, input)));
    }
    chain.links_.push_back(std::move(link));
  }
  for (const PortType& type : inputs) chain.inputs_.push_back({type.dtype, type.shape, {}});
  const ComponentBinder binder(bundle_, chain.links_, inputs);
  for (const PortType& type : outputs) {
    chain.outputs_.push_back(FERRY_TRY(binder.result_of(type)));
  }
  return chain;
}

}  // namespace ferry::runner
