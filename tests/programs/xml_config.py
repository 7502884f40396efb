import configparser
import tomllib
import xml.etree.ElementTree as ET

root = ET.fromstring("<cfg><db host='h' port='5432'/><on>true</on></cfg>")
config = configparser.ConfigParser()
config["db"] = dict(root.find("db").attrib)
with open("app.ini", "w") as out:
    config.write(out)
config = configparser.ConfigParser()
config.read("app.ini")
print(config.getint("db", "port"), root.findtext("on"))
print(tomllib.loads("[a]\nb = [1, 2]\nwhen = 2024-01-02")["a"])
