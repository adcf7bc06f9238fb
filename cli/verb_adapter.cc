// ferry adapter adds adapters to a bundle, removes them and lists them.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/trust.h"
#include "cli/verbs.h"
#include "conversion/adapters.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "packer/adapter_edit.h"
#include "packer/bundle_reader.h"
#include "plan/bundle_options.h"
#include "signing/model_digest.h"
#include "signing/sign_model.h"

namespace ferry::cli {
namespace {

struct AdapterLine {
  std::string bundle, adapter, name;
  bool overwrite = false;
  signing::SigningKey key;
};

std::string name_of_folder(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

// Opens the bundle. Before its files are signed, every byte is compared with the manifest.
Result<packer::Bundle> open(Context& context, const AdapterLine& line) {
  const bool signs = !line.key.private_key.empty();
  const std::string signature = fmt::format("{}/{}", line.bundle, signing::kSignatureName);
  if (!signs && std::filesystem::exists(signature)) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: is signed, and the signature would no longer fit: --key signs it "
                            "again",
                            printable(line.bundle)));
  }
  return packer::Bundle::open(line.bundle, signs, context.pool(), context.progress("checking"));
}

// Returns what signs the new directory; `signed_by` gets the signer.
packer::AdapterEdit edit_of(Context& context, const AdapterLine& line,
                            std::optional<signing::Signer>& signed_by) {
  packer::AdapterEdit edit;
  edit.progress = context.progress("writing");
  if (line.key.private_key.empty()) return edit;
  edit.finish = [&](const std::string& directory) -> Status {
    const signing::DigestOptions digest{.progress = context.progress("signing"),
                                        .name = base_name(name_of_folder(line.bundle))};
    const std::string to = fmt::format("{}/{}", directory, signing::kSignatureName);
    signed_by =
        FERRY_TRY(signing::sign_model(directory, line.key, to, digest, context.pool())).signer;
    return {};
  };
  return edit;
}

const packer::ManifestFile& file_of(const packer::Manifest& manifest, const std::string& path) {
  return *std::ranges::find(manifest.files, path, &packer::ManifestFile::path);
}

void write_adapter(JsonWriter& json, const packer::Manifest& manifest,
                   const packer::ManifestAdapter& adapter) {
  const packer::ManifestFile& file = file_of(manifest, adapter.file);
  json.begin_object().member("name", adapter.name).member("path", adapter.file);
  json.member("bytes", file.bytes).member("sha256", file.digest);
  json.key("files").begin_array();
  for (const packer::ManifestSourceFile& from : adapter.source_files) {
    json.begin_object().member("path", from.path).member("bytes", from.bytes);
    json.member("sha256_tree", from.sha256_tree).end_object();
  }
  json.end_array().end_object();
}

int print_changed(Context& context, const AdapterLine& line, const packer::Manifest& manifest,
                  bool added, const std::optional<signing::Signer>& signer) {
  if (context.json) {
    JsonWriter json;
    json.begin_object().member("path", line.bundle).member("name", line.name);
    json.member("adapters", manifest.adapters.size());
    if (added) {
      json.key("adapter");
      write_adapter(json, manifest, *manifest.find_adapter(line.name));
    }
    write_signer(json, signer);
    json.end_object();
    context.print_result(json.take(), 0);
    return 0;
  }
  if (context.quiet) return 0;
  const std::string size =
      added ? fmt::format(", {}",
                          human_bytes(file_of(manifest, packer::adapter_file(line.name)).bytes))
            : std::string();
  context.print(fmt::format("{}: adapter {} {}{}; {} in all\n", printable(line.bundle), line.name,
                            added ? "added" : "removed", size, manifest.adapters.size()));
  if (signer) {
    context.print(fmt::format("signed with the key {} ({})\n", signer->key, signer->curve));
  }
  return 0;
}

Result<int> add(Context& context, const AdapterLine& line) {
  if (line.name.empty()) return fail(ErrorCode::kUsage, "--name NAME is required");
  const packer::Bundle bundle = FERRY_TRY(open(context, line));
  std::optional<signing::Signer> signer;
  const packer::Manifest manifest = FERRY_TRY(conversion::add_adapter(
      bundle, {.path = line.adapter, .name = line.name, .overwrite = line.overwrite},
      edit_of(context, line, signer), context.pool()));
  return print_changed(context, line, manifest, /*added=*/true, signer);
}

Result<int> remove(Context& context, const AdapterLine& line) {
  const packer::Bundle bundle = FERRY_TRY(open(context, line));
  std::optional<signing::Signer> signer;
  const packer::Manifest manifest =
      FERRY_TRY(packer::remove_adapter(bundle, line.name, edit_of(context, line, signer)));
  return print_changed(context, line, manifest, /*added=*/false, signer);
}

std::string list_text(const AdapterLine& line, const packer::Bundle& bundle,
                      const graph::FactorSlots& slots) {
  const packer::Manifest& manifest = bundle.manifest();
  if (slots.slots.empty()) {
    return fmt::format("{}: its programs take no adapters\n", printable(line.bundle));
  }
  int64_t least = slots.slots.front().rank, most = 0;
  for (const graph::FactorSlot& slot : slots.slots) {
    least = std::min(least, slot.rank);
    most = std::max(most, slot.rank);
  }
  const std::string ranks =
      least == most ? fmt::format("rank {}", most) : fmt::format("ranks {} to {}", least, most);
  std::string text =
      fmt::format("{}: factors of {} weights, {}, {}; {} adapters\n", printable(line.bundle),
                  slots.slots.size(), ranks, dtype_name(slots.dtype), manifest.adapters.size());
  for (const packer::ManifestAdapter& adapter : manifest.adapters) {
    text +=
        fmt::format("  {}  {}\n", adapter.name, human_bytes(file_of(manifest, adapter.file).bytes));
  }
  return text;
}

Result<int> list(Context& context, const AdapterLine& line) {
  const packer::Bundle bundle =
      FERRY_TRY(packer::Bundle::open(line.bundle, /*check_digests=*/false, context.pool()));
  const graph::FactorSlots slots = plan::factors_of(bundle);
  if (!context.json) {
    context.print(list_text(line, bundle, slots));
    return 0;
  }
  JsonWriter json;
  json.begin_object().member("path", line.bundle);
  json.member("dtype", slots.slots.empty() ? std::string_view() : dtype_name(slots.dtype));
  json.key("factors").begin_array();
  for (const graph::FactorSlot& slot : slots.slots) {
    json.begin_object().member("weight", slot.weight).member("embedding", slot.is_table);
    json.member("rank", slot.rank).end_object();
  }
  json.end_array().key("adapters").begin_array();
  for (const packer::ManifestAdapter& adapter : bundle.manifest().adapters) {
    write_adapter(json, bundle.manifest(), adapter);
  }
  json.end_array().end_object();
  context.print_result(json.take(), 0);
  return 0;
}

void add_key(Verb& verb, AdapterLine& line) {
  verb.option("--key FILE", line.key.private_key,
              "Private key, PEM, that signs the new bundle; required for a signed one")
      .option("--passphrase-file FILE", line.key.passphrase_file,
              "File whose first line decrypts the key")
      .option("--certificate FILE", line.key.certificate, "Certificate of the key, PEM")
      .option("--chain FILE", line.key.chain, "Certificates of its issuers, PEM; may be repeated");
}

void declare_add(Verb& adapter) {
  auto line = std::make_shared<AdapterLine>();
  Verb verb = adapter.verb("add", "Add an adapter to a bundle; no byte of the base changes");
  verb.positional("BUNDLE", line->bundle, "Bundle of convert --adapters")
      .positional("ADAPTER", line->adapter, "Adapter as peft writes it")
      .finds_models()
      .option("--name NAME", line->name, "Name for run --adapter")
      .flag("--overwrite", line->overwrite, "Replace an adapter of this name");
  add_key(verb, *line);
  verb.example("ferry adapter add bundle/ adapters/formal --name formal",
               "A stop at any moment leaves the bundle as it was, or whole with the adapter.")
      .exit_codes({{"4", "the programs of the bundle cannot hold it"},
                   {"6", "there is an adapter of this name, or the bundle is being written"}})
      .action([line](Context& context) { return add(context, *line); });
}

void declare_remove(Verb& adapter) {
  auto line = std::make_shared<AdapterLine>();
  Verb verb = adapter.verb("remove", "Remove an adapter from a bundle");
  verb.positional("BUNDLE", line->bundle, "Bundle of convert --adapters")
      .positional("NAME", line->name, "Name of the adapter");
  add_key(verb, *line);
  verb.example("ferry adapter remove bundle/ formal", "The other files stay as they are.")
      .exit_codes({{"2", "there is no such adapter"}, {"6", "the bundle is being written"}})
      .action([line](Context& context) { return remove(context, *line); });
}

void declare_list(Verb& adapter) {
  auto line = std::make_shared<AdapterLine>();
  Verb verb = adapter.verb("list", "List the adapters of a bundle, and what adapters it can hold");
  verb.positional("BUNDLE", line->bundle, "Bundle directory")
      .example("ferry adapter list bundle/ --json", "With the rank of each layer.")
      .action([line](Context& context) { return list(context, *line); });
}

}  // namespace

void add_adapter(CommandLine& line) {
  Verb adapter = line.verb("adapter", "Add, remove and list the adapters of a bundle");
  declare_add(adapter);
  declare_remove(adapter);
  declare_list(adapter);
}

}  // namespace ferry::cli
