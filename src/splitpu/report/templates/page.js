// The page is complete without this: it only names the values under the pointer and unfolds everything for the printer.
// Text from the page is only ever written as text, never as markup.
(function () {
  var tip = document.createElement('div');
  tip.id = 'tip'; tip.hidden = true; tip.setAttribute('aria-hidden', 'true');
  document.body.appendChild(tip);
  function numbers(text) { return text.split(' ').map(Number); }
  document.querySelectorAll('svg[data-frame]').forEach(function (chart) {
    var frame = numbers(chart.dataset.frame), lines = Array.from(chart.querySelectorAll('g[data-x]'));
    var series = lines.map(function (g) {
      return { name: g.dataset.name, x: numbers(g.dataset.x), y: numbers(g.dataset.y) };
    });
    var epochs = Array.from(new Set([].concat.apply([], series.map(function (s) { return s.x; }))));
    var cross = document.createElementNS(chart.namespaceURI, 'line');
    cross.setAttribute('class', 'cross');
    cross.setAttribute('y1', frame[4]); cross.setAttribute('y2', frame[5]);
    chart.appendChild(cross);
    function hide() { tip.hidden = true; cross.style.visibility = 'hidden'; }
    chart.addEventListener('pointerleave', hide);
    chart.addEventListener('pointermove', function (event) {
      var box = chart.getBoundingClientRect();
      var at = (event.clientX - box.left) * chart.viewBox.baseVal.width / box.width;
      var wanted = frame[2] + (at - frame[0]) / (frame[1] - frame[0]) * (frame[3] - frame[2]);
      if (!epochs.length) { return hide(); }
      var x = epochs.reduce(function (a, b) { return Math.abs(b - wanted) < Math.abs(a - wanted) ? b : a; });
      var text = series.map(function (s) {
        var y = s.y[s.x.indexOf(x)];
        return y === undefined ? '' : '\n' + s.name + ': ' + (isNaN(y) ? 'no value' : Number(y.toPrecision(4)));
      });
      tip.textContent = chart.dataset.across + ' ' + Number(x.toPrecision(4)) + text.join('');
      tip.hidden = false;
      var place = frame[0] + (x - frame[2]) / (frame[3] - frame[2]) * (frame[1] - frame[0]);
      cross.setAttribute('x1', place); cross.setAttribute('x2', place); cross.style.visibility = 'visible';
      var left = Math.min(event.clientX + 14, document.documentElement.clientWidth - tip.offsetWidth - 8);
      tip.style.transform = 'translate(' + Math.max(left, 8) + 'px,' + (event.clientY + 16) + 'px)';
    });
  });
  addEventListener('beforeprint', function () {
    document.querySelectorAll('details').forEach(function (details) { details.open = true; });
  });
})();
