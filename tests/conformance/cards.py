"""Files of `ferry card`, read by the tools that they are for.

cyclonedx-python-lib validates bills of materials against the schema of CycloneDX 1.7, with formats; huggingface_hub reads model
cards and their metadata; in-toto-attestation reads the provenance; the digests are those that model-signing states. Cards of
checkpoints are random: licences, base models, data sets, tags, texts that mean something to YAML, Markdown and HTML.
"""
import hashlib
import json
import random
import string

import common
from common import Ferry, Wrong

LICENCES = ("apache-2.0", "mit", "llama3.1", "gemma", "other", "cc-by-nc-4.0", "bsd-3-clause")
NASTY = ("no", "1e3", "null", "a: b", "# c", "- d", "'", '"', "<b>x</b>", "[l](http://x.y)", "|", "é", "🙂", "{}", "&a", "*b", "%", "@c")


def front_matter(choose):
    import yaml
    text = lambda: choose.choice(NASTY + tuple("".join(choose.choices(string.printable.strip(), k=8)) for _ in range(4)))  # noqa: E731
    licence = choose.choice(LICENCES)
    data = dict(license=licence, tags=[text() for _ in range(choose.randint(0, 4))], language=["en"],
                base_model=choose.choice(("org/base", ["org/one", "org/two"])), datasets=["org/data", "other/data-2"])
    if licence == "other":
        data.update(license_name="our-licence", license_link="https://example.com/licence")
    return data, "---\n" + yaml.safe_dump(data, allow_unicode=True) + "---\n# Card\n"


def card(promise, number):
    choose = random.Random(f"{promise.seed}/{number}")
    folder = promise.folder / f"card-{number}"
    folder.mkdir()
    common.tiny_llama(folder / "checkpoint", seed=number)
    data, text = front_matter(choose)
    (folder / "checkpoint" / "README.md").write_text(text, encoding="utf-8")
    options = choose.choice(((), ("--dtype", "f32"), ("--quantize", "8da4w", "--quantize-embedding", "8")))
    bundle = common.convert(folder / "checkpoint", folder / "bundle", *options)
    Ferry("card", bundle, "--checkpoint", folder / "checkpoint", "-o", folder / "card").ends_with(0)
    check_bom(folder / "card" / "bom.cdx.json", bundle)
    check_readme(folder / "card" / "README.md", data)
    check_provenance(folder / "card" / "provenance.json", bundle)
    return data["license"]


def digests_of(bundle):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(bundle.iterdir())}


def check_bom(path, bundle):
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    wrong = JsonStrictValidator(SchemaVersion.V1_7).validate_str(path.read_text())
    if wrong is not None:
        raise Wrong(f"the bill of materials is not valid: {wrong}")
    model = json.loads(path.read_text())["metadata"]["component"]
    stated = {part["name"]: part["hashes"][0]["content"] for part in model["components"] if part["type"] == "file"}
    found = digests_of(bundle)
    root = hashlib.sha256(b"".join(bytes.fromhex(found[name]) for name in sorted(found))).hexdigest()
    if stated != found or model["hashes"][0]["content"] != root:
        raise Wrong("the digests of the bill of materials are not those of the files")


def check_readme(path, data):
    import huggingface_hub
    read = huggingface_hub.ModelCard.load(path)
    for name in ("license", "license_name"):
        if data.get(name) is not None and getattr(read.data, name, None) != data[name]:
            raise Wrong(f"{name} of the model card is {getattr(read.data, name, None)!r}, not {data[name]!r}")
    if not set(data["tags"]) <= set(read.data.tags or []):
        raise Wrong(f"tags of the model card are {read.data.tags}, without some of {data['tags']}")
    if read.data.datasets != data["datasets"]:
        raise Wrong(f"data sets of the model card are {read.data.datasets}")
    if "<b>" in read.text or "](http://x.y)" in read.text.replace("\\]", ""):
        raise Wrong("a text became markup")


def check_provenance(path, bundle):
    from google.protobuf import json_format
    from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
    from in_toto_attestation.v1 import statement_pb2
    from in_toto_attestation.v1.statement import Statement
    raw = json.loads(path.read_text())
    predicate = json_format.ParseDict(raw["predicate"], provenance_pb2.Provenance())
    if not predicate.build_definition.build_type or not predicate.run_details.builder.id:
        raise Wrong("the provenance has no build type or no builder")
    Statement.copy_from_pb(json_format.ParseDict(raw, statement_pb2.Statement())).validate()
    stated = {subject["name"]: subject["digest"]["sha256"] for subject in raw["subject"][1:]}
    if stated != digests_of(bundle):
        raise Wrong("the subjects of the provenance are not the files")


def main():
    promise = common.Promise(__doc__)
    for number in range(4 if promise.sample else 40):
        promise.case(f"random card {number}", card, promise, number)
    promise.finish()


if __name__ == "__main__":
    main()
