// ferry card writes the papers of a bundle: a model card, a bill of materials and provenance.

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "card/card.h"
#include "card/facts.h"
#include "card/texts.h"
#include "cli/option_values.h"
#include "cli/verbs.h"
#include "core/atomic_file.h"
#include "core/directory.h"
#include "core/json_writer.h"
#include "core/sha256.h"
#include "core/text.h"
#include "packer/bundle_reader.h"
#include "signing/sign_statement.h"

namespace ferry::cli {
namespace {

namespace fs = std::filesystem;

struct CardLine {
  std::string bundle, out, date, public_key;
  std::string builder = std::string(card::kLocalBuilder);
  std::vector<std::string> anchors;
  card::FactOptions facts;
  signing::SigningKey key;
  bool overwrite = false;
};

// A file of the card.
struct Paper {
  std::string name, text;
};

std::string sha256_of(const std::string& text) {
  return to_hex(sha256(std::as_bytes(std::span(text))));
}

// Returns --date, or else $SOURCE_DATE_EPOCH. Without either, papers have no time, because they
// must not depend on when they are written.
Result<std::optional<int64_t>> time_of(const CardLine& line) {
  if (!line.date.empty()) return std::optional(FERRY_TRY(parse_time("--date", line.date)));
  const char* epoch = std::getenv("SOURCE_DATE_EPOCH");
  if (epoch == nullptr || *epoch == '\0') return std::optional<int64_t>();
  const std::optional<int64_t> seconds = parse_integer(epoch);
  constexpr int64_t kMost = 253402300799;  // the end of the year 9999
  if (seconds && *seconds >= 0 && *seconds <= kMost) return seconds;
  return fail(ErrorCode::kUsage,
              fmt::format("SOURCE_DATE_EPOCH={}: not seconds since 1970", quoted(epoch)));
}

bool is_inside(const std::string& path, const std::string& folder) {
  std::error_code error;
  const fs::path inner = fs::weakly_canonical(fs::absolute(path), error);
  const fs::path outer = fs::canonical(folder, error);
  if (error) return false;
  const std::string relative = inner.lexically_relative(outer).string();
  return relative != ".." && !relative.starts_with("../");
}

Status settle(CardLine& line) {
  while (line.bundle.size() > 1 && line.bundle.ends_with('/')) line.bundle.pop_back();
  if (line.out.empty()) line.out = line.bundle + ".card";
  const signing::SigningKey& key = line.key;
  const bool has_more =
      !key.passphrase_file.empty() || !key.certificate.empty() || !key.chain.empty();
  if (key.private_key.empty() && has_more) {
    return fail(ErrorCode::kUsage, "--passphrase-file, --certificate and --chain belong to --key");
  }
  if (!line.public_key.empty() && !line.anchors.empty()) {
    return fail(ErrorCode::kUsage,
                "an attestation is checked with --public-key or with --trust-anchor, one of both");
  }
  if (!line.public_key.empty() || !line.anchors.empty()) {
    if (line.facts.proof.empty()) {
      return fail(ErrorCode::kUsage, "--public-key and --trust-anchor belong to --attestation");
    }
    line.facts.trust = signing::Trust{.public_key = line.public_key, .anchors = line.anchors};
  }
  if (line.facts.checkpoint.empty() &&
      (!line.facts.config.empty() || !line.facts.lora.empty() || !line.facts.mmproj.empty())) {
    return fail(ErrorCode::kUsage, "--config, --lora and --mmproj belong to --checkpoint");
  }
  const std::string& name = line.facts.checkpoint_name;
  if (!name.empty() && (!card::is_hub_name(name) || name.find('/') == std::string::npos)) {
    return fail(ErrorCode::kUsage,
                fmt::format("--checkpoint-name {}: expected ORG/NAME", quoted(name)));
  }
  if (line.builder.find("://") == std::string::npos) {
    return fail(ErrorCode::kUsage, fmt::format("--builder {}: not a URI", quoted(line.builder)));
  }
  if (is_inside(line.out, line.bundle)) {
    return fail(ErrorCode::kUsage, fmt::format("-o {}: a bundle has no files but those of its "
                                               "manifest",
                                               printable(line.out)));
  }
  // A wrong key is refused before files are hashed.
  if (key.private_key.empty()) return {};
  const auto signer = signing::signer_of(key);
  return signer ? Status() : Failure(signer.error());
}

Status check_new(const CardLine& line, const std::vector<std::string>& names) {
  if (line.overwrite) return {};
  for (const std::string& name : names) {
    const std::string path = line.out + "/" + name;
    std::error_code error;
    if (!fs::exists(fs::symlink_status(path, error))) continue;
    return fail(ErrorCode::kExists,
                fmt::format("{}: exists; --overwrite replaces it", printable(path)));
  }
  return {};
}

Result<std::vector<Paper>> make_papers(const CardLine& line, const card::Facts& facts,
                                       std::optional<int64_t> time) {
  std::string provenance = card::provenance(facts, line.builder);
  if (!line.key.private_key.empty()) {
    provenance = FERRY_TRY(signing::sign_statement(provenance, line.key));
  }
  std::vector<Paper> papers = {{"README.md", card::readme(facts)},
                               {"bom.cdx.json", card::ml_bom(facts, time)},
                               {"provenance.json", provenance + "\n"}};
  if (facts.proof) papers.push_back({facts.proof->name, facts.proof->text});
  return papers;
}

// All files are complete before the first of them gets its name.
Status write_papers(const std::string& directory, const std::vector<Paper>& papers,
                    bool overwrite) {
  NewFolders made = FERRY_TRY(NewFolders::make(directory));
  std::vector<AtomicFile> files;
  for (const Paper& paper : papers) {
    files.push_back(FERRY_TRY(AtomicFile::create(directory + "/" + paper.name,
                                                 overwrite ? IfExists::kReplace : IfExists::kRefuse,
                                                 paper.text.size())));
    FERRY_RETURN_IF_ERROR(files.back().write_at(0, std::as_bytes(std::span(paper.text))));
  }
  made.keep();
  for (AtomicFile& file : files) FERRY_RETURN_IF_ERROR(file.publish());
  return {};
}

void note_gaps(Context& context, const CardLine& line, const card::Facts& facts) {
  if (facts.card_file.empty()) {
    context.note(
        "no card of the checkpoint: licence, base model and data sets are unknown; give "
        "--checkpoint with a README.md");
  } else if (facts.card.licenses.empty()) {
    context.note(fmt::format("{}: names no licence", printable(facts.card_file)));
  }
  if (line.facts.checkpoint.empty()) {
    context.note("without --checkpoint its files are known by sha256_tree only");
  }
  if (facts.proof && facts.proof->attested && !facts.proof->signer) {
    context.note(fmt::format("{}: its signature was not checked; give --public-key",
                             printable(line.facts.proof)));
  }
}

std::string card_json(const CardLine& line, const card::Facts& facts,
                      const std::vector<Paper>& papers) {
  JsonWriter json;
  json.begin_object().member("path", line.bundle).member("directory", line.out);
  json.key("files").begin_array();
  for (const Paper& paper : papers) {
    json.begin_object().member("name", paper.name).member("bytes", paper.text.size());
    json.member("sha256", sha256_of(paper.text)).end_object();
  }
  json.end_array().member("model", facts.bundle).member("sha256", facts.root);
  json.member("manifest_sha256", facts.manifest_sha256).member("signed", facts.is_signed);
  json.key("checkpoint").begin_object().member("name", facts.checkpoint_name);
  json.member("commit", facts.checkpoint_commit);
  json.member("checked", !line.facts.checkpoint.empty()).member("card", facts.card_file);
  json.key("licenses").value(facts.card.licenses);
  json.key("base_models").value(facts.card.base_models);
  json.key("datasets").value(facts.card.datasets);
  json.end_object().key("proof");
  if (facts.proof) {
    json.begin_object().member("name", facts.proof->name).member("claim", facts.proof->claim);
    json.member("attested", facts.proof->attested);
    json.member("verified", facts.proof->signer.has_value()).end_object();
  } else {
    json.null();
  }
  json.member("provenance_signed", !line.key.private_key.empty()).end_object();
  return json.take();
}

std::string card_text(const CardLine& line, const card::Facts& facts,
                      const std::vector<Paper>& papers) {
  std::string text = fmt::format("{}: {} files, {}\n", printable(line.bundle), facts.files.size(),
                                 human_bytes(facts.bytes));
  for (const Paper& paper : papers) {
    text += fmt::format("  {}/{}  {}\n", printable(line.out), printable(paper.name),
                        human_bytes(paper.text.size()));
  }
  return text;
}

Result<int> write_card(Context& context, CardLine& line) {
  FERRY_RETURN_IF_ERROR(settle(line));
  const std::optional<int64_t> time = FERRY_TRY(time_of(line));
  std::vector<std::string> names = {"README.md", "bom.cdx.json", "provenance.json"};
  const std::string proof_name = base_name(line.facts.proof);
  if (std::ranges::count(names, proof_name) > 0) {
    return fail(ErrorCode::kUsage, fmt::format("--attestation {}: has the name of a file of the "
                                               "card",
                                               printable(line.facts.proof)));
  }
  if (!proof_name.empty()) names.push_back(proof_name);
  FERRY_RETURN_IF_ERROR(check_new(line, names));
  const packer::Bundle bundle =
      FERRY_TRY(packer::Bundle::open(line.bundle, /*check_digests=*/true, context.pool(),
                                     context.progress("checking the bundle")));
  const card::Facts facts = FERRY_TRY(card::gather_facts(bundle, line.facts, context.pool()));
  const std::vector<Paper> papers = FERRY_TRY(make_papers(line, facts, time));
  FERRY_RETURN_IF_ERROR(write_papers(line.out, papers, line.overwrite));
  if (context.json) {
    context.print_result(card_json(line, facts, papers), 0);
  } else if (!context.quiet) {
    context.print(card_text(line, facts, papers));
  }
  note_gaps(context, line, facts);
  return 0;
}

}  // namespace

void add_card(CommandLine& line) {
  auto o = std::make_shared<CardLine>();
  Verb verb = line.verb("card", "Write a model card, a bill of materials and provenance");
  verb.description(
      "Writes README.md (a Hugging Face model card), bom.cdx.json (CycloneDX 1.7) and "
      "provenance.json (SLSA Provenance v1) of a bundle, and copies the attestation beside them. "
      "The same input gives the same bytes.");
  verb.positional("BUNDLE", o->bundle, "Bundle, which is checked first")
      .option("-o,--out DIR", o->out, "Folder to write to; default: BUNDLE.card")
      .flag("--overwrite", o->overwrite, "Replace files of the card that are there")
      .option("--checkpoint SRC", o->facts.checkpoint,
              "Checkpoint that the bundle was made of: its README.md is read, and its files are "
              "checked and hashed; default: the README.md in the bundle")
      .finds_models()
      .option("--config FILE", o->facts.config, "config.json that `convert` was given")
      .option("--lora DIR", o->facts.lora, "Adapter that `convert` was given")
      .option("--mmproj FILE", o->facts.mmproj, "Projector that `convert` was given")
      .option("--checkpoint-name ORG/NAME", o->facts.checkpoint_name,
              "Its name at Hugging Face; default: as the folder of the cache says it")
      .option("--attestation FILE", o->facts.proof,
              "Parity attestation, or parity report as JSON, with the figures of the proof")
      .option("--public-key FILE", o->public_key, "Key that must have signed the attestation, PEM")
      .option("--trust-anchor FILE", o->anchors,
              "Root certificate, PEM, of who must have signed it; may be repeated")
      .option("--date TIME", o->date,
              "Timestamp of the bill of materials; default: $SOURCE_DATE_EPOCH, or none")
      .option("--builder URI", o->builder, "Who ran the conversion, for the provenance")
      .option("--key FILE", o->key.private_key,
              "Private key that signs the provenance, PEM: P-256, P-384 or P-521")
      .option("--passphrase-file FILE", o->key.passphrase_file,
              "File whose first line decrypts the key")
      .option("--certificate FILE", o->key.certificate, "Certificate of the key, PEM")
      .option("--chain FILE", o->key.chain, "Certificates of its issuers, PEM; may be repeated")
      .example("ferry card bundle/", "Writes bundle.card/ from what the bundle itself says.")
      .example(
          "ferry card bundle/ --checkpoint checkpoint/ --attestation parity.json --public-key "
          "release.pub -o card/",
          "With digests of the checkpoint's files, and figures of a proof that was checked.")
      .exit_codes({{"3",
                    "the bundle, the card of its checkpoint or the proof is damaged, or is "
                    "about something else"},
                   {"6", "a file of the card exists; see --overwrite"}})
      .action([o](Context& context) { return write_card(context, *o); });
}

}  // namespace ferry::cli
