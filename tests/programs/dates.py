from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo
import calendar

start = datetime(2024, 3, 30, 12, tzinfo=ZoneInfo("Europe/Berlin"))
end = start + timedelta(days=1)
print(start.utcoffset(), end.utcoffset())
print(datetime.fromisoformat("2024-02-29T23:59:59+00:00").astimezone(ZoneInfo("Asia/Tokyo")).isoformat())
print(calendar.monthrange(2024, 2), date(2024, 12, 30).isocalendar().week)
print(datetime(1970, 1, 2, tzinfo=timezone.utc).timestamp())
