#include "card/licences.h"

#include <algorithm>
#include <utility>

namespace ferry::card {
namespace {

// The first column has the ids of https://huggingface.co/docs/hub/repositories-licenses that have
// an SPDX id. Versions of GNU licences leave open whether later ones are allowed, as do the
// deprecated ids of SPDX.
constexpr std::pair<std::string_view, std::string_view> kSpdx[] = {
    {"afl-3.0", "AFL-3.0"},
    {"agpl-3.0", "AGPL-3.0"},
    {"apache-2.0", "Apache-2.0"},
    {"artistic-2.0", "Artistic-2.0"},
    {"bsd-2-clause", "BSD-2-Clause"},
    {"bsd-3-clause", "BSD-3-Clause"},
    {"bsd-3-clause-clear", "BSD-3-Clause-Clear"},
    {"bsl-1.0", "BSL-1.0"},
    {"c-uda", "C-UDA-1.0"},
    {"c-uda-1.0", "C-UDA-1.0"},
    {"cc-by-2.0", "CC-BY-2.0"},
    {"cc-by-2.5", "CC-BY-2.5"},
    {"cc-by-3.0", "CC-BY-3.0"},
    {"cc-by-4.0", "CC-BY-4.0"},
    {"cc-by-nc-2.0", "CC-BY-NC-2.0"},
    {"cc-by-nc-3.0", "CC-BY-NC-3.0"},
    {"cc-by-nc-4.0", "CC-BY-NC-4.0"},
    {"cc-by-nc-nd-3.0", "CC-BY-NC-ND-3.0"},
    {"cc-by-nc-nd-4.0", "CC-BY-NC-ND-4.0"},
    {"cc-by-nc-sa-2.0", "CC-BY-NC-SA-2.0"},
    {"cc-by-nc-sa-3.0", "CC-BY-NC-SA-3.0"},
    {"cc-by-nc-sa-4.0", "CC-BY-NC-SA-4.0"},
    {"cc-by-nd-4.0", "CC-BY-ND-4.0"},
    {"cc-by-sa-3.0", "CC-BY-SA-3.0"},
    {"cc-by-sa-4.0", "CC-BY-SA-4.0"},
    {"cc0-1.0", "CC0-1.0"},
    {"cdla-permissive-1.0", "CDLA-Permissive-1.0"},
    {"cdla-permissive-2.0", "CDLA-Permissive-2.0"},
    {"cdla-sharing-1.0", "CDLA-Sharing-1.0"},
    {"ecl-2.0", "ECL-2.0"},
    {"epl-1.0", "EPL-1.0"},
    {"epl-2.0", "EPL-2.0"},
    {"etalab-2.0", "etalab-2.0"},
    {"eupl-1.1", "EUPL-1.1"},
    {"eupl-1.2", "EUPL-1.2"},
    {"gpl-2.0", "GPL-2.0"},
    {"gpl-3.0", "GPL-3.0"},
    {"isc", "ISC"},
    {"lgpl-2.1", "LGPL-2.1"},
    {"lgpl-3.0", "LGPL-3.0"},
    {"lgpl-lr", "LGPLLR"},
    {"lgpllr", "LGPLLR"},
    {"lppl-1.3c", "LPPL-1.3c"},
    {"mit", "MIT"},
    {"mpl-2.0", "MPL-2.0"},
    {"ms-pl", "MS-PL"},
    {"ncsa", "NCSA"},
    {"odbl", "ODbL-1.0"},
    {"odbl-1.0", "ODbL-1.0"},
    {"odc-by", "ODC-By-1.0"},
    {"odc-by-1.0", "ODC-By-1.0"},
    {"ofl-1.1", "OFL-1.1"},
    {"osl-3.0", "OSL-3.0"},
    {"pddl", "PDDL-1.0"},
    {"pddl-1.0", "PDDL-1.0"},
    {"postgresql", "PostgreSQL"},
    {"unlicense", "Unlicense"},
    {"wtfpl", "WTFPL"},
    {"zlib", "Zlib"},
};

constexpr std::pair<std::string_view, std::string_view> kNames[] = {
    {"apple-amlr", "Apple Machine Learning Research Model License"},
    {"apple-ascl", "Apple Sample Code License"},
    {"bigcode-openrail-m", "BigCode OpenRAIL-M"},
    {"bigscience-bloom-rail-1.0", "BigScience BLOOM RAIL 1.0"},
    {"bigscience-openrail-m", "BigScience OpenRAIL-M"},
    {"creativeml-openrail-m", "CreativeML OpenRAIL-M"},
    {"deepfloyd-if-license", "DeepFloyd IF Research License"},
    {"fair-noncommercial-research-license", "FAIR Noncommercial Research License"},
    {"gemma", "Gemma Terms of Use"},
    {"grok2-community", "Grok 2 Community License"},
    {"intel-research", "Intel Research Use License"},
    {"llama2", "Llama 2 Community License"},
    {"llama3", "Llama 3 Community License"},
    {"llama3.1", "Llama 3.1 Community License"},
    {"llama3.2", "Llama 3.2 Community License"},
    {"llama3.3", "Llama 3.3 Community License"},
    {"llama4", "Llama 4 Community License"},
    {"openmdw-1.0", "Open Model, Data & Weights License 1.0"},
    {"openrail", "OpenRAIL"},
    {"openrail++", "Open RAIL++-M"},
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

template <size_t N>
const std::pair<std::string_view, std::string_view>* find(
    const std::pair<std::string_view, std::string_view> (&table)[N], std::string_view licence) {
  const std::string id = lower(licence);
  for (const auto& row : table) {
    if (row.first == id) return &row;
  }
  return nullptr;
}

}  // namespace

std::optional<std::string_view> spdx_id(std::string_view licence) {
  const auto* row = find(kSpdx, licence);
  return row == nullptr ? std::nullopt : std::optional(row->second);
}

std::string licence_name(std::string_view licence) {
  const auto* row = find(kNames, licence);
  return std::string(row == nullptr ? licence : row->second);
}

}  // namespace ferry::card
