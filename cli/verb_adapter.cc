// ferry adapter adds adapters to a bundle, removes them and lists them.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "cli/trust.h"
#include "cli/verbs.h"
#include "conversion/adapter_edits.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "packer/bundle_reader.h"
#include "plan/bundle_options.h"

namespace ferry::cli {
namespace {

struct AdapterLine {
  std::string bundle, adapter, name;
  bool overwrite = false;
  signing::SigningKey key;
};

conversion::BundleEdit edit_of(Context& context, const AdapterLine& line) {
  return {line.bundle, line.key, [&](const char* step) { return context.progress(step); }};
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

int print_changed(Context& context, const AdapterLine& line, const conversion::EditedBundle& edited,
                  bool added) {
  const packer::Manifest& manifest = edited.manifest;
  if (context.json) {
    JsonWriter json;
    json.begin_object().member("path", line.bundle).member("name", line.name);
    json.member("adapters", manifest.adapters.size());
    if (added) {
      json.key("adapter");
      write_adapter(json, manifest, *manifest.find_adapter(line.name));
    }
    write_signer(json, edited.signer);
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
  if (edited.signer) {
    context.print(
        fmt::format("signed with the key {} ({})\n", edited.signer->key, edited.signer->curve));
  }
  return 0;
}

Result<int> add(Context& context, const AdapterLine& line) {
  if (line.name.empty()) return fail(ErrorCode::kUsage, "--name NAME is required");
  const conversion::EditedBundle edited = FERRY_TRY(conversion::edit_adding(
      edit_of(context, line),
      {.path = line.adapter, .name = line.name, .overwrite = line.overwrite}, context.pool()));
  return print_changed(context, line, edited, /*added=*/true);
}

Result<int> remove(Context& context, const AdapterLine& line) {
  const conversion::EditedBundle edited =
      FERRY_TRY(conversion::edit_removing(edit_of(context, line), line.name, context.pool()));
  return print_changed(context, line, edited, /*added=*/false);
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
