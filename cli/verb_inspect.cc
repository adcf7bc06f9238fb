// ferry inspect: what is in a file of any kind that we know.

#include <memory>

#include "cli/listing_report.h"
#include "cli/verbs.h"

namespace ferry::cli {

void add_inspect(CommandLine& line) {
  auto path = std::make_shared<std::string>();
  line.verb("inspect", "Show what is in a checkpoint, a program, a data file or a bundle")
      .positional("PATH", *path, "File or directory")
      .example("ferry inspect checkpoint/", "Tensors with dtype, shape and bytes.")
      .example("ferry inspect bundle/ --json | jq '.result.programs[].methods[].name'",
               "The methods of a bundle's programs.")
      .action([path](Context& context) -> Result<int> {
        const Result<listing::Listing> listing = listing::list_path(*path, context.pool());
        // One line whatever the file: details are for conversions.
        if (!listing) return fail(listing.error().code, listing.error().message);
        if (context.json) {
          context.print_result(to_json(*listing), 0);
        } else {
          context.print(to_text(*listing));
        }
        return 0;
      });
}

}  // namespace ferry::cli
