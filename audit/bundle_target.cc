// A bundle: its manifest says what each of its tensors is made of, and has their digests.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "audit/account.h"
#include "audit/component.h"
#include "audit/folder_files.h"
#include "audit/program_leaves.h"
#include "audit/targets.h"
#include "core/checked.h"
#include "core/file.h"
#include "core/text.h"
#include "packer/bundle_reader.h"

namespace ferry::audit {
namespace {

Leaf manifest_leaf(const packer::ManifestTensor& tensor) {
  const Component part = component_of(tensor.name);
  Leaf leaf{.offset = tensor.offset,
            .bytes = tensor.bytes,
            .kind = LeafKind::kWeight,
            .name = tensor.name,
            .component = part.name,
            .layer = part.layer,
            .dtype = std::string(dtype_name(tensor.dtype)),
            .shape = tensor.shape,
            .rule = tensor.rule,
            .sha256 = tensor.sha256};
  if (tensor.output.empty()) {
    leaf.elements = static_cast<uint64_t>(checked_numel(tensor.shape).value_or(0));
  } else {
    leaf.use = kScales;
  }
  return leaf;
}

class BundleAudit {
 public:
  explicit BundleAudit(const packer::Bundle& bundle) : bundle_(bundle) {
    audit_.name = target_name(bundle.path());
    audit_.type = "bundle";
    audit_.model_type = bundle.manifest().model_type;
  }

  Result<Audit> run() {
    const InputFile manifest =
        FERRY_TRY(InputFile::open(bundle_.path_of(std::string(packer::kManifestName))));
    list_files(manifest.size());
    FERRY_RETURN_IF_ERROR(list_unlisted());
    index_files();
    FERRY_RETURN_IF_ERROR(add_programs());
    add_data();
    add_others();
    std::ranges::stable_sort(audit_.leaves, [](const Leaf& a, const Leaf& b) {
      return std::pair(a.file, a.offset) < std::pair(b.file, b.offset);
    });
    mark_unused();
    add_memory_of_manifest();
    audit_.account = account_of(bundle_.manifest(), audit_);
    return std::move(audit_);
  }

 private:
  void list_files(uint64_t manifest_bytes) {
    const packer::Manifest& manifest = bundle_.manifest();
    const std::string name(packer::kManifestName);
    audit_.files.push_back({name, manifest_bytes, "manifest"});
    for (const packer::ManifestFile& file : manifest.files) {
      std::string type(type_of_file(file.path));
      if (file.path == manifest.reference) type = "reference";
      if (bundle_.data().contains(file.path)) type = "data";
      audit_.files.push_back({file.path, file.bytes, std::move(type)});
      digests_[file.path] = file.method == "sha256" ? file.digest : "";
    }
    for (const packer::ManifestProgram* program : manifest.programs()) {
      for (AuditedFile& file : audit_.files) {
        if (file.path == program->file) file.type = "program";
      }
    }
  }

  // A signature is not in the manifest that it signs.
  Status list_unlisted() {
    std::ranges::move(FERRY_TRY(other_files(bundle_.path(), audit_.files)),
                      std::back_inserter(audit_.files));
    return {};
  }

  void index_files() {
    std::ranges::sort(audit_.files, {}, &AuditedFile::path);
    for (uint32_t i = 0; i < audit_.files.size(); ++i) index_[audit_.files[i].path] = i;
  }

  void append(std::vector<Leaf> leaves) {
    std::ranges::move(leaves, std::back_inserter(audit_.leaves));
  }

  Status add_programs() {
    for (size_t i = 0; i < bundle_.programs().size(); ++i) {
      const std::string& file = bundle_.entry(i).file;
      const packer::BundleProgram& program = bundle_.programs()[i];
      ProgramLeaves found = FERRY_TRY(leaves_of_program(
          program.loaded, program.file.bytes(), index_.at(file), printable(bundle_.path_of(file))));
      append(std::move(found.leaves));
      used_keys_.merge(found.external_keys);
      knows_all_keys_ = knows_all_keys_ && found.knows_all_keys;
    }
    return {};
  }

  void add_data() {
    std::map<std::string_view, std::vector<Leaf>> tensors;
    for (const packer::ManifestTensor& tensor : bundle_.manifest().tensors) {
      tensors[tensor.file].push_back(manifest_leaf(tensor));
    }
    for (const auto& [file, data] : bundle_.data()) {
      append(leaves_of_data(data.content, data.file.bytes().size(), index_.at(file),
                            std::move(tensors[file])));
    }
  }

  void add_others() {
    for (uint32_t i = 0; i < audit_.files.size(); ++i) {
      const AuditedFile& file = audit_.files[i];
      if (file.type == "program" || file.type == "data") continue;
      Leaf leaf = whole_file(file, i);
      leaf.sha256 = digests_[file.path];
      audit_.leaves.push_back(std::move(leaf));
    }
  }

  void mark_unused() {
    for (Leaf& leaf : audit_.leaves) {
      if (leaf.kind != LeafKind::kWeight || !knows_all_keys_ || leaf.part > 0) continue;
      const auto is_used = [&](const std::string& name) { return used_keys_.contains(name); };
      leaf.unused = !is_used(leaf.name) && std::ranges::none_of(leaf.tied, is_used);
    }
  }

  void add_memory_of_manifest() {
    audit_.memory.emplace();
    for (const packer::ManifestProgram* program : bundle_.manifest().programs()) {
      const uint32_t file = index_.at(program->file);
      std::set<std::string_view> seen;  // methods share buffers by name
      for (const packer::ManifestMethod& method : program->methods) {
        audit_.memory->methods.push_back(
            {file, method.name, method.activation_bytes, program->state_bytes});
        for (const packer::ManifestBuffer& b : method.buffers) {
          if (!seen.insert(b.name).second) continue;
          audit_.memory->buffers.push_back(
              {file, b.name, b.dtype, b.shape, b.bytes, b.init == "stored"});
        }
      }
    }
  }

  const packer::Bundle& bundle_;
  Audit audit_;
  std::map<std::string, uint32_t> index_;  // into audit_.files
  std::map<std::string, std::string> digests_;
  std::set<std::string> used_keys_;
  bool knows_all_keys_ = true;
};

}  // namespace

Result<Audit> audit_bundle(const std::string& path, ThreadPool& pool) {
  const packer::Bundle bundle =
      FERRY_TRY(packer::Bundle::open(path, /*check_digests=*/false, pool));
  return BundleAudit(bundle).run();
}

}  // namespace ferry::audit
